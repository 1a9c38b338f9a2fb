"""What all tests share."""


def pytest_addoption(parser):
    parser.addoption("--update-golden", action="store_true", help="rewrite the golden texts")
