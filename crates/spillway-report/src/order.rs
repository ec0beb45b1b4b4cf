//! Names in the order in which they come.

/// Each value once, in the order of first appearance.
#[must_use]
pub fn distinct<T: PartialEq>(values: impl Iterator<Item = T>) -> Vec<T> {
    let mut found = Vec::new();
    for value in values {
        if !found.contains(&value) {
            found.push(value);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_value_stays_where_it_came_first() {
        assert_eq!(distinct([3, 1, 3, 2, 1].into_iter()), [3, 1, 2]);
    }
}
