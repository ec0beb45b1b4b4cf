//! Names of functions as their programmers know them: compilers of Rust and C++ write them into a file in a
//! form that linkers take.

use std::fmt::{self, Write};

use cpp_demangle::{DemangleOptions, Symbol};

/// No name is longer than so many bytes: a template's may have thousands.
const MOST_BYTES: usize = 240;
/// What stands at the end of one that is cut off.
const CUT_OFF: &str = "...";

/// The name in its language, without what a Rust compiler adds to tell versions apart and without the
/// parameters of C++. A name that is neither's stays as it is.
pub fn demangled(name: &str) -> String {
    of_rust(name).or_else(|| of_cpp(name)).unwrap_or_else(|| Limited::of(|text| text.write_str(name)))
}

fn of_rust(name: &str) -> Option<String> {
    let found = rustc_demangle::try_demangle(name).ok()?;
    Some(Limited::of(|text| write!(text, "{found:#}")))
}

fn of_cpp(name: &str) -> Option<String> {
    if !name.starts_with("_Z") {
        return None;
    }
    let symbol = Symbol::new(name).ok()?;
    let options = DemangleOptions::new().no_params().no_return_type();
    let text = Limited::of(|text| symbol.structured_demangle(text, &options));
    (!text.is_empty()).then_some(text)
}

/// Text that takes no more than [`MOST_BYTES`]; who writes more is stopped.
#[derive(Default)]
struct Limited {
    text: String,
    is_full: bool,
}

impl Limited {
    /// What is written; nothing where that fails for another reason than its length.
    fn of(write: impl FnOnce(&mut Self) -> fmt::Result) -> String {
        let mut limited = Self::default();
        match write(&mut limited) {
            Ok(()) => limited.text,
            Err(_) if limited.is_full => limited.text + CUT_OFF,
            Err(_) => String::new(),
        }
    }
}

impl Write for Limited {
    fn write_str(&mut self, more: &str) -> fmt::Result {
        let room = MOST_BYTES - CUT_OFF.len() - self.text.len();
        if more.len() <= room {
            self.text.push_str(more);
            return Ok(());
        }
        self.text.push_str(&more[..more.floor_char_boundary(room)]);
        self.is_full = true;
        Err(fmt::Error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_rust_and_cpp_are_read_and_others_stay() {
        for (name, expected) in [
            ("main", "main"),
            ("", ""),
            ("PyObject_Malloc", "PyObject_Malloc"),
            ("_ZN4core3ptr13drop_in_place17h05af221e174051e9E", "core::ptr::drop_in_place"),
            ("_RNvCs15kBYyAo9fc_7mycrate7example", "mycrate::example"),
            ("_ZN4book5pages4readEPKc", "book::pages::read"),
            ("_ZNSt6vectorIiSaIiEE9push_backERKi", "std::vector<int, std::allocator<int> >::push_back"),
            ("_ZN", "_ZN"),
            ("_Znonsense", "_Znonsense"),
        ] {
            assert_eq!(demangled(name), expected, "{name}");
        }
    }

    #[test]
    fn no_name_is_longer_than_there_is_room_for() {
        // Each substitution stands for all before it.
        let nested: String = (0..24).fold("i".to_owned(), |inner, _| format!("St4pairI{inner}S_E"));
        let many: String =
            (0..400).map(|number| format!("{}n{number}", format!("n{number}").len())).collect();
        for name in
            ["x".repeat(5000), format!("_ZN{many}Ev"), format!("_Z1fI{nested}Evv"), "\u{e9}".repeat(999)]
        {
            let read = demangled(&name);
            assert!(read.len() <= MOST_BYTES && !read.is_empty(), "{} bytes", read.len());
        }
        assert!(demangled(&"x".repeat(5000)).ends_with(CUT_OFF));
    }
}
