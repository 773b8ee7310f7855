//! Room for others within the work on a block.

/// What an encoder calls between pieces of its work, if anything.
#[derive(Default)]
pub struct Pause(Option<Box<dyn FnMut() + Send>>);

impl Pause {
    /// Calls `pause`.
    pub fn with(pause: impl FnMut() + Send + 'static) -> Pause {
        Pause(Some(Box::new(pause)))
    }

    /// A piece of work is done.
    pub fn offer(&mut self) {
        if let Some(pause) = &mut self.0 {
            pause();
        }
    }
}
