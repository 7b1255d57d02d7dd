//! Runs user code so that a panic in it is an outcome and does not end a worker.

use std::{
    any::Any,
    future::Future,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
    task::{Context, Poll},
};

/// A future whose panic is a value.
pub(crate) struct CatchPanic<'a, F>(Pin<&'a mut F>);

/// Runs `future`; a panic in it becomes `Err` with its message.
///
/// The future is dropped after a panic and never polled again, so nobody sees what the panic left half done.
pub(crate) fn catch<F: Future>(future: Pin<&mut F>) -> CatchPanic<'_, F> {
    CatchPanic(future)
}

impl<F: Future> Future for CatchPanic<'_, F> {
    type Output = Result<F::Output, String>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match catch_unwind(AssertUnwindSafe(|| self.0.as_mut().poll(context))) {
            Ok(poll) => poll.map(Ok),
            Err(panic) => Poll::Ready(Err(message(&*panic))),
        }
    }
}

/// Returns the message of a panic.
pub(crate) fn message(panic: &(dyn Any + Send)) -> String {
    let text =
        panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    format!("panicked: {}", text.unwrap_or("without a message"))
}
