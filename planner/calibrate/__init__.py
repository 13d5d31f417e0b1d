"""A user's own measurements adjust a few constants of a stack.

calibrate(runs, output) -> (Calibration, text)    fit, cross-validate, write a profile
load_profile(path) -> Profile                     what was written
apply_profile(stack, profile) -> Stack            the stack with the user's constants
"""

from planner.calibrate.profile import Profile, apply_profile, load_profile

__all__ = ["Profile", "apply_profile", "load_profile"]
