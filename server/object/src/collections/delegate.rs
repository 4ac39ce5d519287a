//! How a collection is a member of a critical type: as its parts, one after the other.

/// Writes [`crate::hidden::Member`] for a struct of these parts, each a value of fixed length or a store.
macro_rules! member_of_parts {
    ($name:ident<$($of:ident: $bound:path),*> { $($part:ident: $ty:ty),* $(,)? }) => {
        impl<$($of: $bound),*> $crate::hidden::Member for $name<$($of),*> {
            type Packed = ($(<$ty as $crate::hidden::Member>::Packed,)*);
            const IS_CHILD: bool = true;
            const IS_FLAT: bool = true $(&& <$ty as $crate::hidden::Member>::IS_FLAT)*;
            const FIXED: usize = 0 $(+ <$ty as $crate::hidden::Member>::FIXED)*;
            #[inline(always)]
            #[allow(unused_assignments)]
            fn put(&self, place: &mut [u8]) {
                let mut at = 0;
                $(
                    let end = at + <$ty as $crate::hidden::Member>::FIXED;
                    $crate::hidden::Member::put(&self.$part, &mut place[at..end]);
                    at = end;
                )*
            }
            fn sum(&self, summer: &mut $crate::Summer) {
                $($crate::hidden::Member::sum(&self.$part, summer);)*
            }
            fn pack(&self, out: &mut Vec<u8>) {
                $($crate::hidden::Member::pack(&self.$part, out);)*
            }
            fn unpack(from: &mut $crate::Reader<'_>) -> Result<Self::Packed, $crate::Malformed> {
                Ok(($(<$ty as $crate::hidden::Member>::unpack(from)?,)*))
            }
            fn install(&mut self, packed: Self::Packed) {
                let ($($part,)*) = packed;
                $($crate::hidden::Member::install(&mut self.$part, $part);)*
            }
            fn blank() -> Self {
                Self::new()
            }
            fn children<'a>(&'a self, visit: &mut dyn FnMut($crate::hidden::Child<'a>)) {
                $($crate::hidden::Member::children(&self.$part, visit);)*
            }
            fn children_mut<'a>(&'a mut self, visit: &mut dyn FnMut($crate::hidden::ChildMut<'a>)) {
                $($crate::hidden::Member::children_mut(&mut self.$part, visit);)*
            }
            fn classes(visit: &mut dyn FnMut(&'static $crate::hidden::Class) -> bool) {
                $(<$ty as $crate::hidden::Member>::classes(visit);)*
            }
            #[cfg(feature = "inject")]
            fn damage(&mut self, damage: $crate::inject::Damage) -> bool {
                use $crate::inject::Damage;
                let Damage::Flip(mut bit) = damage else {
                    return false $(|| $crate::hidden::Member::damage(&mut self.$part, damage))*;
                };
                $(
                    let bits = <$ty as $crate::hidden::Member>::FIXED as u64 * 8;
                    if bit < bits {
                        return $crate::hidden::Member::damage(&mut self.$part, Damage::Flip(bit));
                    }
                    bit -= bits;
                )*
                let _ = bit;
                false
            }
        }

        impl<$($of: $bound),*> Default for $name<$($of),*> {
            fn default() -> Self {
                Self::new()
            }
        }
    };
}
pub(crate) use member_of_parts;
