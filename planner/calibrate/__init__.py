"""A user's own measurements adjust a few constants of a stack.

calibrate(runs, output) -> (Calibration, text)    fit, cross-validate, write a profile
load_profile(path) -> Profile                     what was written
apply_profile(stack, profile, gpu) -> Stack       the stack with the user's constants
profile_note(stack, profile, gpu, name) -> str    whether a profile covers a stack on a GPU
"""

from planner.calibrate.profile import Profile, apply_profile, load_profile, profile_note

__all__ = ["Profile", "apply_profile", "load_profile", "profile_note"]
