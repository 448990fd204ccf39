//! What grammars make they find, and what is wrong with them they say.

use super::Grammar;

const SHELL: &str = r#"
# A key-value shell.
start   = { command "\n" } ;
command = "put " key " " value | "del " key | "get " key | "sync" ;
key     = 0..63 | name ;
name    = [a-z] 0..7 * [a-z0-9_] ;
value   = "\"" { [^"\n\x00-\x1f\x7f-\xff] } "\"" | list | ("-" | "+")? 1..18446744073709551615 ;
list    = "(" value { "," value } ")" ;
"#;

fn error(text: &str) -> String {
    text.parse::<Grammar>().map(drop).unwrap_err().to_string()
}

#[test]
fn what_is_generated_is_found() {
    let grammar: Grammar = SHELL.parse().unwrap();
    let mut longest = 0;
    for seed in 0..500 {
        let input = grammar.generate(seed, 2000);
        assert_eq!(input, grammar.generate(seed, 2000));
        let found = grammar
            .find(&input)
            .unwrap_or_else(|| panic!("{}", String::from_utf8_lossy(&input)));
        let commands = input.split(|byte| *byte == b'\n').count() - 1;
        assert_eq!(found.repetitions.last().unwrap().items.len(), commands);
        longest = longest.max(commands);
    }
    assert!(longest > 20);
}

#[test]
fn what_is_no_input_is_not_found() {
    let grammar: Grammar = SHELL.parse().unwrap();
    for input in ["", "sync\n", "put 63 (1,(2,\"x\"))\ndel a_1\n"] {
        assert!(grammar.matches(input.as_bytes()), "{input}");
    }
    for input in [
        "sync",
        "put 64 1\n",
        "put 1\n",
        "put 1 (1\n",
        "del abcdefghi\n",
        "put 1 0\n",
    ] {
        assert!(!grammar.matches(input.as_bytes()), "{input}");
    }
}

#[test]
fn lengths_are_kept() {
    let grammar: Grammar = r#"start = { "x" } ;"#.parse().unwrap();
    assert!((0..100).all(|seed| grammar.generate(seed, 10).len() <= 10));
    let deep: Grammar = r#"start = "(" start start ")" | "x" ;"#.parse().unwrap();
    assert!((0..100).all(|seed| deep.generate(seed, 100).len() < 10_000));
}

#[test]
fn errors_say_where_and_what() {
    for (text, expected) in [
        (
            "",
            "line 1, column 1: expected at least one rule: start = ... ;",
        ),
        (
            "start = \"a",
            "line 1, column 9: this literal is not closed: write \\n for the end of a line",
        ),
        (
            "start =\n  command ;",
            "line 2, column 3: unknown rule 'command'; expected one of: start",
        ),
        (
            "start = a ;\na = a \"x\" ;",
            "line 2, column 1: 'a' never ends: each alternative needs itself",
        ),
        (
            "start = 9..1 ;",
            "line 1, column 9: the range 9..1 is empty",
        ),
        (
            "start = 9 ;",
            "line 1, column 9: expected a range (0..9) or a count (3 * x) after a number; quote literals",
        ),
        (
            "start = [z-a] ;",
            "line 1, column 10: this range ends before it starts",
        ),
        (
            "start = [] ;",
            "line 1, column 9: this class has no characters",
        ),
        (
            "start = [a ;\n",
            "line 1, column 9: this class is not closed: ']' is missing",
        ),
        (
            "start = ( \"a\" ;",
            "line 1, column 15: expected ')' to close the parenthesis, found ';'",
        ),
        (
            "start = \"a\"\nb = \"b\" ;",
            "line 2, column 3: expected ';' at the end of a rule, found '='",
        ),
        (
            "a = \"a\" ;\na = \"b\" ;",
            "line 2, column 1: duplicate rule 'a'; use | for alternatives",
        ),
        (
            "start = \"\\q\" ;",
            "line 1, column 11: unknown escape: expected \\n \\t \\r \\0 \\\\ \\\" \\- \\] \\[ \\^ and \\x00",
        ),
        ("start = % ;", "line 1, column 9: '%' has no meaning here"),
        (
            "start = * ;",
            "line 1, column 9: expected a literal, class, range, name or group, found '*'",
        ),
        (
            "= ;",
            "line 1, column 1: expected the name of a rule: name = ... ;",
        ),
    ] {
        assert_eq!(error(text), expected, "{text}");
    }
}
