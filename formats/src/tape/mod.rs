mod model;
pub use model::*;
/// A hash of the requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct TapeId(pub u128);
