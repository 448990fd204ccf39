//! Findings as users see them: text with and without sources, JSON and its schema, formats for other programs.

mod common;
mod formats;
mod json;
mod text;
