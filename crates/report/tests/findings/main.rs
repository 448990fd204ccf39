//! Findings as users see them: text with and without sources, JSON and its schema.

mod common;
mod json;
mod text;
