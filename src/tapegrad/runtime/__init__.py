import time

LOADED = time.time()  # sources that were changed later aren't those that run
