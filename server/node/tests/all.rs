//! Every integration test of the crate in one binary. They run replicas of small services: here and not beside the
//! pipeline, because this crate is compiled without optimisation in tests, and each service compiles a pipeline.

mod builds;
mod timers;
