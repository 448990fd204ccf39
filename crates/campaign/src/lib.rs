//! A fuzzing campaign: workers execute test cases, what is new becomes images and goes through the checks.
