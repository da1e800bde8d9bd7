//! The module `delayed_topics_engine`; `delayed_topics_engine.pyi` documents it.

#[pyo3::pymodule]
mod delayed_topics_engine {
    use pyo3::prelude::*;

    #[pyfunction]
    fn murmur2(data: &[u8]) -> u32 {
        crate::partitioner::murmur2(data)
    }
}
