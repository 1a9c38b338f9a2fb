"""stub"""
class Miss(Exception): ...
class Entry:
    fast=False
    @staticmethod
    def build(*a): raise NotImplementedError
