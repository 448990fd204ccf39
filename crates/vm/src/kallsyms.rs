//! The symbols of a running kernel, from the text of `/proc/kallsyms`.

use std::collections::BTreeMap;

/// A function of the kernel or of a module.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct KernelSymbol {
    /// Its address.
    pub address: u64,
    /// Its name.
    pub name: String,
}

/// The name for what belongs to no module.
pub(crate) const KERNEL: &str = "vmlinux";
/// The kernel has no longer ones.
const MODULE_NAME_LEN_MAX: usize = 64;

/// Whether a module can have this name.
fn is_module_name(name: &str) -> bool {
    let is_letter = |it: char| it.is_ascii_alphanumeric() || matches!(it, '_' | '-');
    (1..=MODULE_NAME_LEN_MAX).contains(&name.len()) && name.chars().all(is_letter)
}

/// The functions by the module that has them, in the order of their addresses; `vmlinux` is the kernel itself. Lines that
/// are no functions are left out.
pub fn parse(text: &str) -> BTreeMap<String, Vec<KernelSymbol>> {
    let mut modules: BTreeMap<String, Vec<KernelSymbol>> = BTreeMap::new();
    for line in text.lines() {
        let mut words = line.split_whitespace();
        let (Some(address), Some(kind), Some(name)) = (words.next(), words.next(), words.next())
        else {
            continue;
        };
        let Ok(address) = u64::from_str_radix(address, 16) else {
            continue;
        };
        // Others are data. Zero is what those see who may not know.
        if !matches!(kind, "t" | "T" | "w" | "W") || address == 0 {
            continue;
        }
        let module = words.next().map(|word| word.trim_matches(['[', ']']));
        let module = module.unwrap_or(KERNEL);
        // It becomes the name of a file, and a guest can write anything.
        if !is_module_name(module) {
            continue;
        }
        let symbols = modules.entry(module.to_owned());
        symbols.or_default().push(KernelSymbol {
            address,
            name: name.to_owned(),
        });
    }
    for symbols in modules.values_mut() {
        symbols.sort();
        // Aliases: one name is enough.
        symbols.dedup_by_key(|symbol| symbol.address);
    }
    modules
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_by_module() {
        let text = "ffffffff81000000 T _text\n\
                    ffffffff81000000 T startup_64\n\
                    ffffffff82000000 D some_data\n\
                    ffffffffc0002000 t ext4_fill\t[ext4]\n\
                    ffffffffc0001000 t ext4_init\t[ext4]\n\
                    0000000000000000 t hidden\n\
                    ffffffffc0003000 t escape\t[../../etc/passwd]\n\
                    ffffffffc0003000 t above\t[..]\n\
                    ffffffffc0003000 t nothing\t[]\n\
                    nonsense\n";
        let modules = parse(text);
        assert_eq!(modules.len(), 2);
        assert_eq!(modules["vmlinux"].len(), 1);
        let names: Vec<&str> = modules["ext4"].iter().map(|it| it.name.as_str()).collect();
        assert_eq!(names, ["ext4_init", "ext4_fill"]);
    }
}
