//! The sizes in which the compressed store hands out memory.
//!
//! A span of 64 KiB holds objects of one size. For every number of objects that fit into a span there is one
//! size, the largest, in steps of 64 bytes; so what a page wastes is small against the page.

/// Bytes of arena that are given to one class at a time.
pub const SPAN_BYTES: usize = 64 << 10;

/// Sizes are multiples of this.
const GRAIN_BYTES: usize = 64;

/// A page that does not get smaller than this is stored as it is: reading it is then a plain copy.
pub const LARGEST_COMPRESSED_BYTES: usize = 3584;

/// Bytes of an object of the last class, a page stored as it is.
const LARGEST_BYTES: usize = 4096;

const GRAINS: usize = LARGEST_BYTES / GRAIN_BYTES;

/// A class, by its number; small numbers are small objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Class(pub(super) u8);

/// Whether objects of so many grains have a class of their own.
const fn has_class(grains: usize) -> bool {
    if grains * GRAIN_BYTES > LARGEST_COMPRESSED_BYTES {
        return grains == GRAINS;
    }
    SPAN_BYTES / (grains * GRAIN_BYTES) != SPAN_BYTES / ((grains + 1) * GRAIN_BYTES)
        || grains * GRAIN_BYTES == LARGEST_COMPRESSED_BYTES
}

const fn count_classes() -> usize {
    let (mut count, mut grains) = (0, 1);
    while grains <= GRAINS {
        count += has_class(grains) as usize;
        grains += 1;
    }
    count
}

/// How many classes of sizes there are.
pub const CLASSES: usize = count_classes();

const SIZES: [u16; CLASSES] = {
    let mut sizes = [0; CLASSES];
    let (mut class, mut grains) = (0, 1);
    while grains <= GRAINS {
        if has_class(grains) {
            sizes[class] = (grains * GRAIN_BYTES) as u16;
            class += 1;
        }
        grains += 1;
    }
    sizes
};

/// Class by the number of grains that an object needs.
const BY_GRAINS: [u8; GRAINS + 1] = {
    let mut classes = [0; GRAINS + 1];
    let (mut class, mut grains) = (0, 1);
    while grains <= GRAINS {
        classes[grains] = class as u8;
        if has_class(grains) {
            class += 1;
        }
        grains += 1;
    }
    classes
};

impl Class {
    /// The smallest class that holds `bytes` bytes; none for more than a page.
    #[must_use]
    pub fn holding(bytes: usize) -> Option<Self> {
        BY_GRAINS.get(bytes.div_ceil(GRAIN_BYTES)).copied().map(Self)
    }

    /// The class of this number, if there is one.
    #[must_use]
    pub fn numbered(number: u64) -> Option<Self> {
        u8::try_from(number).ok().filter(|number| usize::from(*number) < CLASSES).map(Self)
    }

    /// Its number, from 0 and below [`CLASSES`].
    #[must_use]
    pub fn number(self) -> usize {
        usize::from(self.0)
    }

    /// Bytes of an object.
    #[must_use]
    pub fn object_bytes(self) -> usize {
        SIZES.get(self.number()).copied().map_or(LARGEST_BYTES, usize::from)
    }

    /// Objects in a span.
    #[must_use]
    pub fn objects_per_span(self) -> usize {
        SPAN_BYTES / self.object_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_length_has_a_class_that_wastes_little() {
        for bytes in 1..=4096 {
            let class = Class::holding(bytes).unwrap();
            assert!(class.object_bytes() >= bytes);
            if bytes <= LARGEST_COMPRESSED_BYTES {
                let waste = SPAN_BYTES / class.objects_per_span() - bytes;
                assert!(waste <= 64 + bytes / 14, "{bytes} bytes waste {waste}");
            }
            let smaller = class.number().checked_sub(1).map(|number| SIZES[number]);
            assert!(smaller.is_none_or(|size| usize::from(size) < bytes));
        }
        assert_eq!(Class::holding(4097), None);
    }

    #[test]
    fn numbers_are_checked() {
        assert_eq!(Class::numbered(CLASSES as u64), None);
        let last = Class::numbered(CLASSES as u64 - 1).unwrap();
        assert_eq!((last.object_bytes(), last.objects_per_span()), (4096, 16));
        assert_eq!(Class::holding(LARGEST_COMPRESSED_BYTES).unwrap().object_bytes(), 3584);
    }
}
