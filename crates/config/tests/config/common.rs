//! Sample findings.

use powerfail_finding::{Code, Finding, Role, SourcePlace, StackFrame};

/// A finding at one place.
pub(crate) fn finding(code: Code, function: &str, file: &str, line: u32) -> Finding {
    Finding {
        id: format!("{function}-{line}"),
        code,
        class: code.class(),
        severity: code.severity(),
        message: "wrong".to_owned(),
        count: 1,
        places: vec![SourcePlace {
            file: Some(file.to_owned()),
            line: Some(line),
            function: Some(function.to_owned()),
            ..SourcePlace::new(Role::Store)
        }],
        suggestion: None,
        fix: None,
        explanation: None,
        evidence: None,
        read: None,
        consequences: Vec::new(),
        marks: powerfail_finding::Marks::NONE,
        durable_by: powerfail_finding::DurableBy::Flush,
        tree: None,
        beside: Vec::new(),
    }
}

/// A frame of a call stack.
pub(crate) fn frame(function: &str, file: &str) -> StackFrame {
    StackFrame {
        function: Some(function.to_owned()),
        file: Some(file.to_owned()),
        line: Some(1),
        module: None,
        offset: 0,
        trusted: false,
    }
}
