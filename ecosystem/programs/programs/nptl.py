"""glibc's own tests of threads that build outside of its tree."""

NEEDS = ("cc",)


def lacks():
    return "not written yet"


def run(side):
    raise NotImplementedError
