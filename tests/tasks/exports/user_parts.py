from scipy.special import expit


def number_in(line):
    """Return what stands before the first semicolon."""
    return float(line.partition(";")[0])


def scaled(values, params):
    """Call a library that an export must then require."""
    return {"y": params["scale"] * values, "p": expit(values)}


class Centered:
    """Numbers less a mean, which subclasses and instances set."""

    MEAN = 0.0

    @classmethod
    def less_mean(cls, numbers):
        return numbers - cls.MEAN

    def less_own(self, numbers):
        return numbers - self.mean


class Ages(Centered):
    MEAN = 30.0
