//! The rules of the lint, on traces that are written by hand or at random.

mod common;
mod files;
mod naive;
mod requests;
mod rules;
mod scope;
mod transactions;
mod trust;
mod useless;
mod warnings;
