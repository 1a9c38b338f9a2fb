"""One run of a function, and the tape that it leaves. `run.py` is the way in for all who trace;
beside it stands what whole runs are: two that are alike, the errors of floating point that are
watched for, trees that are partly on a tape."""
