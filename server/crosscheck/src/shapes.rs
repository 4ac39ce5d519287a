//! What a service is made of, for the handshake: two replicas whose critical types or requests differ do not compare
//! what they compute.
//!
//! Types that changed have several versions, each with the number of the behavior since which objects are written in
//! it. Two releases have to have the same versions up to the newest behavior that both know: no other one is written
//! while both serve.

use std::collections::{BTreeMap, BTreeSet};

use object::Shape;
use object::hidden::Class;
use schedule::Lock;

use crate::service::Service;

/// Most classes that are named; all further ones count as one.
const NAMED: usize = 24;
/// The prefix of a class's name in the hello.
pub(crate) const CLASS: &str = "class ";
/// The name of all classes beyond [`NAMED`] in the hello.
pub(crate) const FURTHER: &str = "further classes";
/// The prefix of the name of all classes that changed in one version, which follows.
pub(crate) const CHANGED: &str = "classes of version ";
/// The name of the requests in the hello.
pub(crate) const REQUESTS: &str = "set of requests";

/// Classes of a version by their names.
type Named = BTreeMap<&'static str, Vec<&'static Class>>;

/// The critical types that can be behind the service's locks, and its requests: name, and what it is made of.
pub(crate) fn of<S: Service>(service: &S) -> Vec<(String, String)> {
    let mut shapes = of_locks(&service.locks());
    let mut requests = Shape::default();
    S::shape_of_requests(&mut requests);
    shapes.push((REQUESTS.to_owned(), format!("{:016x}", requests.digest())));
    shapes
}

/// The version of which a setting in a hello says which classes changed in it.
pub(crate) fn version_of(name: &str) -> Option<u16> {
    name.strip_prefix(CHANGED)?.parse().ok()
}

/// Whether a class behind these locks has more than one version.
pub(crate) fn have_versions(locks: &[&dyn Lock]) -> bool {
    classes(locks).iter().any(|class| !class.older.is_empty())
}

/// Says that a class has a version that belongs to no behavior up to this one, so that no object would be written in
/// it.
pub(crate) fn beyond(locks: &[&dyn Lock], newest: u16) -> Option<String> {
    let class = classes(locks).into_iter().find(|class| class.version > newest)?;
    Some(format!(
        "class {} is of version {}, and the service acts as behavior {newest} at most, so no object would ever be \
            written in that version: raise `Service::BEHAVIORS`, or lower the version",
        class.short_name(),
        class.version
    ))
}

/// All classes behind these locks.
pub(crate) fn classes(locks: &[&dyn Lock]) -> Vec<&'static Class> {
    let (mut seen, mut all) = (BTreeSet::new(), Vec::new());
    for lock in locks {
        lock.classes(&mut |class| {
            // Objects of collections have the short names of what is in them, which two modules may have.
            let is_new = seen.insert((class.name, class.tag));
            if is_new {
                all.push(class);
            }
            is_new
        });
    }
    all
}

fn of_locks(locks: &[&dyn Lock]) -> Vec<(String, String)> {
    let mut versions: BTreeMap<u16, Named> = BTreeMap::new();
    for class in classes(locks).into_iter().flat_map(Class::versions) {
        versions.entry(class.version).or_default().entry(class.short_name()).or_default().push(class);
    }
    let first = versions.remove(&Class::FIRST).unwrap_or_default();
    let mut shapes: Vec<(String, String)> =
        first.iter().map(|(name, classes)| (format!("{CLASS}{name}"), of_classes(classes))).collect();
    if shapes.len() > NAMED {
        let further = shapes.split_off(NAMED);
        let mut shape = Shape::default();
        further.iter().for_each(|(name, made_of)| shape.member(name, made_of));
        shapes.push((FURTHER.to_owned(), format!("{} ({:016x})", further.len(), shape.digest())));
    }
    for (version, changed) in versions {
        let mut shape = Shape::default();
        changed.iter().for_each(|(name, classes)| shape.member(name, &of_classes(classes)));
        let names: Vec<&str> = changed.into_keys().collect();
        shapes
            .push((format!("{CHANGED}{version}"), format!("({:016x}) {}", shape.digest(), names.join(", "))));
    }
    shapes
}

/// Classes of one name, in different modules: mostly one.
fn of_classes(classes: &[&Class]) -> String {
    let mut shape = Shape::default();
    let mut ordered = classes.to_vec();
    ordered.sort_by_key(|class| (class.name, class.tag));
    for class in ordered {
        // Of each class its own description: what is part of two of them counts for both.
        let mut one = Shape::default();
        (class.shape)(&mut one);
        shape.member(class.name, &format!("{:016x}", one.digest()));
    }
    let members: usize = classes.iter().map(|class| class.members.len()).sum();
    format!("{members} member{} ({:016x})", if members == 1 { "" } else { "s" }, shape.digest())
}

#[cfg(test)]
mod tests {
    use object::{Store, critical, genesis};
    use schedule::DetMutex;

    use super::*;

    fn first() -> Box<dyn Lock> {
        #[critical]
        struct Job {
            id: u64,
        }
        #[critical]
        struct Root {
            jobs: Store<Job>,
        }
        #[critical]
        impl Root {
            fn new() -> Self {
                Self { jobs: Store::new() }
            }
        }
        Box::new(DetMutex::new(0, genesis(0, Root::new)))
    }

    fn second() -> Box<dyn Lock> {
        #[critical(version = 2)]
        struct Job {
            id: u64,
            #[since(2)]
            weight: u32,
        }
        #[critical(since = 2)]
        struct Pin {
            job: u64,
        }
        #[critical(version = 2)]
        struct Root {
            #[since(2)]
            pins: Store<Pin>,
            jobs: Store<Job>,
        }
        #[critical]
        impl Root {
            fn new() -> Self {
                Self { pins: Store::new(), jobs: Store::new() }
            }
        }
        Box::new(DetMutex::new(0, genesis(0, Root::new)))
    }

    /// Types in functions have the path of the module, as those of two builds of a program have.
    #[test]
    fn a_release_says_of_its_older_versions_what_the_older_release_says() {
        let [old, new] = [first(), second()].map(|lock| of_locks(&[&*lock]));
        assert_eq!(
            old.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(),
            ["class Job", "class Root"]
        );
        assert_eq!(new[..2], old);
        assert_eq!((new.len(), version_of(&new[2].0), version_of(&old[0].0)), (3, Some(2), None));
        assert!(new[2].1.ends_with(") Job, Pin, Root"), "{new:?}");
        assert!(!have_versions(&[&*first()]) && have_versions(&[&*second()]));
        assert_eq!((beyond(&[&*first()], 1), beyond(&[&*second()], 2)), (None, None));
        let why = beyond(&[&*second()], 1).expect("no object would be written so");
        assert!(
            why.contains("class Root is of version 2") && why.contains("raise `Service::BEHAVIORS`"),
            "{why}"
        );
    }
}
