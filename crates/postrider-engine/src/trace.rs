//! The trace that is current in this task: taken along by `write`, restored around delivery.

use std::future::Future;

use postrider_core::TraceContext;

tokio::task_local! {
    static CURRENT: TraceContext;
}

/// The trace that the running task is in: that of the event which is being delivered, or of the [`scope`] around it.
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
