//! What types are made of, as a number: two builds whose types differ are told apart before they exchange objects or
//! requests.

use std::any::TypeId;
use std::collections::BTreeSet;

use crate::summed::Summed;

/// The description of a type: names, the names and types of members or variants, in their order, and the same of the
/// types in it. `#[critical]`, `#[derive(Summed)]` and `#[derive(Shaped)]` write it.
#[derive(Debug)]
pub struct Shape {
    hash: u64,
    /// Types that were described already: a type may be part of itself.
    entered: BTreeSet<TypeId>,
}

impl Default for Shape {
    fn default() -> Self {
        Shape { hash: 0xCBF2_9CE4_8422_2325, entered: BTreeSet::new() }
    }
}

impl Shape {
    /// The shape of one type.
    pub fn of<T: Shaped>() -> Self {
        let mut shape = Shape::default();
        T::describe(&mut shape);
        shape
    }

    /// Adds the shape of one more type.
    pub fn add<T: Shaped>(&mut self) {
        T::describe(self);
    }

    /// Adds a word; its end is part of it.
    pub fn text(&mut self, word: &str) {
        for byte in word.bytes().chain([0xFF]) {
            self.hash = (self.hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01B3);
        }
    }

    /// Begins the description of a type. Returns whether it is the first time.
    pub fn begins<T: 'static>(&mut self, name: &str) -> bool {
        self.text(name);
        self.entered.insert(TypeId::of::<T>())
    }

    /// Adds a member, as the author writes its name and its type.
    pub fn member(&mut self, name: &str, ty: &str) {
        self.text(name);
        self.text(ty);
    }

    /// The number that stands for the shape. Equal for equal types, built by the same compiler or another one.
    pub fn digest(&self) -> u64 {
        self.hash
    }
}

/// A type with a [`Shape`]: every [`Summed`] one, and enums and structs with `#[derive(Shaped)]`, for requests that
/// have an encoding of their own. Of a member whose type has no shape, the name of the type counts.
pub trait Shaped: 'static {
    /// Describes the type.
    fn describe(shape: &mut Shape);
}

impl<T: Summed> Shaped for T {
    fn describe(shape: &mut Shape) {
        T::shape(shape);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn digest<T: Shaped>() -> u64 {
        Shape::of::<T>().digest()
    }

    /// Types in functions have the path of the module: they differ in nothing but what they are made of.
    macro_rules! digest_of {
        ($($item:item)*) => {{
            $(#[derive(object_macros::Summed)] $item)*
            digest::<Job>()
        }};
    }

    #[test]
    fn equal_types_have_equal_shapes_and_each_change_another_one() {
        let job = || digest_of! { struct Job { id: u64, owner: Owner } struct Owner(u32, String); };
        assert_eq!(job(), digest_of! { struct Job { id: u64, owner: Owner } struct Owner(u32, String); });
        let all = [
            job(),
            digest_of! { struct Job { id: u64, owner: Owner, weight: u32 } struct Owner(u32, String); },
            digest_of! { struct Job { owner: Owner, id: u64 } struct Owner(u32, String); },
            digest_of! { struct Job { key: u64, owner: Owner } struct Owner(u32, String); },
            digest_of! { struct Job { id: u32, owner: Owner } struct Owner(u32, String); },
            digest_of! { struct Job { id: u64, owner: Owner } struct Owner(u64, String); },
            digest_of! { struct Job { id: u64, owner: Option<Owner> } struct Owner(u32, String); },
            digest_of! { struct Job { id: u64, owner: Option<Owner> } struct Owner(u64, String); },
            digest_of! { enum Job { One(u64), Two } },
            digest_of! { enum Job { Two, One(u64) } },
        ];
        assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), all.len(), "{all:?}");
    }

    #[test]
    fn containers_show_what_is_in_them() {
        let all = [
            digest::<u32>(),
            digest::<Vec<u32>>(),
            digest::<Option<u32>>(),
            digest::<Vec<u64>>(),
            digest::<BTreeMap<u32, u64>>(),
            digest::<BTreeMap<u64, u32>>(),
            digest::<[u32; 2]>(),
            digest::<[u32; 3]>(),
            digest::<(u32, u64)>(),
            digest::<(u64, u32)>(),
        ];
        assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), all.len(), "{all:?}");
    }

    #[test]
    fn a_type_that_is_part_of_itself_has_a_shape() {
        let leaf = digest_of! { enum Job { Leaf, Node(Box<Job>) } };
        assert_ne!(leaf, digest_of! { enum Job { Leaf, Node(Box<Job>, Box<Job>) } });
    }

    /// A request with an encoding of its own.
    #[test]
    fn a_type_without_a_checksum_has_a_shape_too() {
        let one = || {
            #[derive(object_macros::Shaped)]
            #[allow(dead_code)]
            enum Request {
                Get { keys: &'static [u8] },
                Put(u32),
            }
            digest::<Request>()
        };
        let two = || {
            #[derive(object_macros::Shaped)]
            #[allow(dead_code)]
            enum Request {
                Get { keys: &'static [u8] },
                Put(u64),
            }
            digest::<Request>()
        };
        assert!(one() == one() && one() != two());
    }
}
