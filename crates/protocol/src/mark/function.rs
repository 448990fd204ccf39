//! The functions of libpmemobj whose calls are marked.

/// Names of the functions of libpmemobj that are noted, by their numbers in [`LIBRARY_ENTER`](super::LIBRARY_ENTER).
pub const FUNCTIONS: &[&str] = &[
    "pmemobj_tx_commit",
    "pmemobj_tx_abort",
    "pmemobj_tx_end",
    "pmemobj_tx_add_range",
    "pmemobj_tx_add_range_direct",
    "pmemobj_tx_xadd_range",
    "pmemobj_tx_xadd_range_direct",
    "pmemobj_tx_alloc",
    "pmemobj_tx_zalloc",
    "pmemobj_tx_xalloc",
    "pmemobj_tx_realloc",
    "pmemobj_tx_zrealloc",
    "pmemobj_tx_strdup",
    "pmemobj_tx_xstrdup",
    "pmemobj_tx_wcsdup",
    "pmemobj_tx_xwcsdup",
    "pmemobj_tx_free",
    "pmemobj_tx_xfree",
    "pmemobj_tx_publish",
    "pmemobj_tx_xpublish",
    "pmemobj_alloc",
    "pmemobj_zalloc",
    "pmemobj_xalloc",
    "pmemobj_realloc",
    "pmemobj_zrealloc",
    "pmemobj_strdup",
    "pmemobj_wcsdup",
    "pmemobj_free",
    "pmemobj_defrag",
    "pmemobj_reserve",
    "pmemobj_xreserve",
    "pmemobj_publish",
    "pmemobj_cancel",
    "pmemobj_defer_free",
    "pmemobj_set_value",
    "pmemobj_list_insert",
    "pmemobj_list_insert_new",
    "pmemobj_list_remove",
    "pmemobj_list_move",
    "pmemobj_root",
    "pmemobj_root_construct",
    "pmemobj_create",
    "pmemobj_open",
    "pmemobj_close",
    "pmemobj_persist",
    "pmemobj_xpersist",
    "pmemobj_flush",
    "pmemobj_xflush",
    "pmemobj_drain",
    "pmemobj_memcpy_persist",
    "pmemobj_memset_persist",
    "pmemobj_memcpy",
    "pmemobj_memmove",
    "pmemobj_memset",
];

/// The number of a function of [`FUNCTIONS`].
///
/// # Panics
/// If it is not among them.
pub const fn function(name: &str) -> u64 {
    let mut number = 0;
    while number < FUNCTIONS.len() {
        if same(FUNCTIONS[number].as_bytes(), name.as_bytes()) {
            return number as u64;
        }
        number += 1;
    }
    panic!("the function is in the list")
}

const fn same(one: &[u8], other: &[u8]) -> bool {
    if one.len() != other.len() {
        return false;
    }
    let mut at = 0;
    while at < one.len() {
        if one[at] != other[at] {
            return false;
        }
        at += 1;
    }
    true
}

/// Whether the function of a [`LIBRARY_ENTER`](super::LIBRARY_ENTER) makes something durable before it returns, whatever it is
/// given: not those that only flush, copy without draining, or reserve.
pub fn orders(function: u64) -> bool {
    const WITHOUT: [&str; 10] = [
        "pmemobj_flush",
        "pmemobj_xflush",
        "pmemobj_memcpy",
        "pmemobj_memmove",
        "pmemobj_memset",
        "pmemobj_reserve",
        "pmemobj_xreserve",
        "pmemobj_cancel",
        "pmemobj_defer_free",
        "pmemobj_set_value",
    ];
    function_name(function).is_some_and(|name| !WITHOUT.contains(&name))
}

/// Whether the function of a [`LIBRARY_ENTER`](super::LIBRARY_ENTER) stores and flushes what and where its caller says, and
/// nothing of its own.
pub fn stores_for_caller(function: u64) -> bool {
    function_name(function).is_some_and(|name| {
        name.starts_with("pmemobj_mem") || name.ends_with("persist") || name.ends_with("flush")
    })
}

/// The name of the function of a [`LIBRARY_ENTER`](super::LIBRARY_ENTER).
pub fn function_name(function: u64) -> Option<&'static str> {
    FUNCTIONS.get(usize::try_from(function).ok()?).copied()
}

#[cfg(test)]
mod tests {
    use super::{FUNCTIONS, function, function_name, orders, stores_for_caller};

    #[test]
    fn functions_have_numbers() {
        for (number, text) in (0..).zip(FUNCTIONS) {
            assert_eq!(function(text), number);
            assert_eq!(function_name(number), Some(*text));
        }
        assert_eq!(function_name(FUNCTIONS.len() as u64), None);
    }

    #[test]
    fn what_functions_do() {
        assert!(orders(function("pmemobj_persist")));
        assert!(orders(function("pmemobj_tx_add_range")));
        assert!(!orders(function("pmemobj_flush")));
        assert!(stores_for_caller(function("pmemobj_memset_persist")));
        assert!(!stores_for_caller(function("pmemobj_tx_commit")));
        assert!(!orders(u64::MAX) && !stores_for_caller(u64::MAX));
    }
}
