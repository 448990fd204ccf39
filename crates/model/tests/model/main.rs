//! What the model offers, piece by piece.

mod frontier;
mod image;
