//! Carries the current trace: `write` takes it along, and delivery restores it.

use std::future::Future;

use postrider_core::TraceContext;

tokio::task_local! {
    static CURRENT: TraceContext;
}

/// Returns the trace of the running task: that of the event being delivered, or of the [`scope`] around it.
pub fn current() -> Option<TraceContext> {
    CURRENT.try_with(Clone::clone).ok()
}

/// Runs `future` in the given trace.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), postrider_core::EventError> {
/// use postrider_core::TraceContext;
/// use postrider_engine::trace;
///
/// let context = TraceContext::new("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", None)?;
/// trace::scope(context.clone(), async move { assert_eq!(trace::current(), Some(context)) }).await;
/// # Ok(()) }
/// ```
pub async fn scope<F: Future>(context: TraceContext, future: F) -> F::Output {
    CURRENT.scope(context, future).await
}
