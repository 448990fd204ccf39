//! The attribute of `powerfail-test`: a test that is given a `Check` which knows its name.
//!
//! A function of one argument needs no parser: the tokens before `fn` belong to the test, the rest is kept as it is.

use proc_macro::{Delimiter, Group, Ident, Span, TokenStream, TokenTree};

/// Makes a test of a function with one argument, a `powerfail_test::Check`.
///
/// Other attributes, such as `#[ignore]`, and a result work as with `#[test]`.
#[proc_macro_attribute]
pub fn test(arguments: TokenStream, function: TokenStream) -> TokenStream {
    let wrapped = if arguments.is_empty() {
        wrap(function)
    } else {
        Err("#[powerfail_test::test] takes no arguments; options are methods of Check")
    };
    wrapped.unwrap_or_else(|message| {
        let message = format!("::core::compile_error!({message:?});");
        message.parse().unwrap_or_default()
    })
}

/// `#[test] fn name() -> R { fn name(check: Check) -> R { .. } name(Check::of_test(..)) }`.
fn wrap(function: TokenStream) -> Result<TokenStream, &'static str> {
    let tokens: Vec<TokenTree> = function.into_iter().collect();
    let is_word = |token: &TokenTree, word: &str| matches!(token, TokenTree::Ident(it) if it.to_string() == word);
    let at = tokens.iter().position(|token| is_word(token, "fn"));
    let at = at.ok_or("#[powerfail_test::test] is for functions")?;
    let (before, rest) = tokens.split_at(at);
    if before.iter().any(|token| is_word(token, "async")) {
        return Err("a test of powerfail cannot be async; start a runtime inside of its closures");
    }
    let [
        _,
        TokenTree::Ident(name),
        TokenTree::Group(parameters),
        result @ ..,
        body,
    ] = rest
    else {
        return Err("#[powerfail_test::test] is for functions without generic parameters");
    };
    let has_parameters =
        parameters.delimiter() == Delimiter::Parenthesis && !parameters.stream().is_empty();
    if !has_parameters || !matches!(body, TokenTree::Group(_)) {
        return Err("the function needs one argument, a powerfail_test::Check");
    }
    let mut call = TokenStream::new();
    call.extend(rest.iter().cloned());
    call.extend([TokenTree::Ident(Ident::new(
        &name.to_string(),
        Span::call_site(),
    ))]);
    let check = format!(
        "(::powerfail_test::Check::of_test(::core::concat!(::core::module_path!(), \"::\", ::core::stringify!({name}))))"
    );
    let check: TokenStream = check
        .parse()
        .map_err(|_| "the name of the test cannot be read")?;
    call.extend(check);
    let mut test: TokenStream = "#[::core::prelude::v1::test]"
        .parse()
        .map_err(|_| "no attribute")?;
    test.extend(before.iter().cloned());
    test.extend(rest[..2].iter().cloned());
    test.extend([TokenTree::Group(Group::new(
        Delimiter::Parenthesis,
        TokenStream::new(),
    ))]);
    test.extend(result.iter().cloned());
    test.extend([TokenTree::Group(Group::new(Delimiter::Brace, call))]);
    Ok(test)
}
