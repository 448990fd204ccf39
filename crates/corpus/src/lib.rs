//! What a fuzzing campaign keeps on disk: images of pools in a tree whose edges are (input, failure
//! point), and test cases. Everything is appended, so that a kill at any moment loses nothing that was
//! reported.
