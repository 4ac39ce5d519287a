//! The parts of the protection that a benchmark leaves out, to measure their cost (workshop paper, Fig. 5). The
//! switches are for the whole process, are set before the first request, and exist only in builds of the laboratory:
//! nothing that ships has them.

use crate::class::Class;
#[cfg(feature = "lab")]
pub use switches::{protect_only, without_before_images};

/// Whether objects of the class are neither checked nor summed.
#[inline]
pub(crate) fn is_exempt(class: &Class) -> bool {
    #[cfg(feature = "lab")]
    return switches::is_exempt(class);
    #[cfg(not(feature = "lab"))]
    {
        let _ = class;
        false
    }
}

/// Whether before-images are kept where a request's options ask for them.
#[inline]
pub(crate) fn keeps_before_images() -> bool {
    #[cfg(feature = "lab")]
    return switches::keeps_before_images();
    #[cfg(not(feature = "lab"))]
    true
}

#[cfg(feature = "lab")]
mod switches {
    use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

    use crate::class::Class;
    use crate::critical::{Critical, Members};

    static SOME_EXEMPT: AtomicBool = AtomicBool::new(false);
    static NO_IMAGES: AtomicBool = AtomicBool::new(false);
    /// Tags of exempt classes; 0 is unused.
    static EXEMPT: [AtomicU32; 16] = [const { AtomicU32::new(0) }; 16];

    /// Of the classes that a region with the root `T` can hold, protects only those with these names, from
    /// now on and in the whole process. Returns the names of all of them.
    ///
    /// # Panics
    ///
    /// If there are more than 16 classes.
    pub fn protect_only<T: Critical>(names: &[&str]) -> Vec<&'static str> {
        let mut classes: Vec<&'static Class> = Vec::new();
        T::Members::classes(&mut |class| {
            let is_new = classes.iter().all(|known| known.tag != class.tag);
            if is_new {
                classes.push(class);
            }
            is_new
        });
        assert!(classes.len() <= EXEMPT.len(), "more classes than can be told apart here");
        for (place, class) in EXEMPT.iter().zip(&classes) {
            let tag = if names.contains(&class.short_name()) { 0 } else { class.tag };
            place.store(tag, Ordering::Relaxed);
        }
        SOME_EXEMPT.store(true, Ordering::Relaxed);
        classes.iter().map(|class| class.short_name()).collect()
    }

    /// Keeps no before-images from now on: no request of this process can be undone any more.
    pub fn without_before_images() {
        NO_IMAGES.store(true, Ordering::Relaxed);
    }

    #[inline]
    pub fn is_exempt(class: &Class) -> bool {
        SOME_EXEMPT.load(Ordering::Relaxed)
            && EXEMPT.iter().any(|tag| tag.load(Ordering::Relaxed) == class.tag)
    }

    #[inline]
    pub fn keeps_before_images() -> bool {
        !NO_IMAGES.load(Ordering::Relaxed)
    }
}
