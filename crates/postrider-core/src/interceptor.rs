//! What runs around every delivery: audit, logs, measurements.

use std::{error::Error as StdError, future::Future, sync::Arc};

use crate::{BoxFuture, Delivery, Outcome};

/// An error of an interceptor.
pub type InterceptorError = Box<dyn StdError + Send + Sync>;

/// Runs around every delivery.
///
/// `before` runs in the order of registration, and an error there is a failed attempt: the handler is not called.
/// `after` runs in reverse order for every interceptor whose `before` succeeded, with the outcome; an error there is
/// logged and changes nothing.
pub trait Interceptor: Send + Sync + 'static {
    /// Runs before the event is routed.
    fn before<'a>(&'a self, delivery: &'a Delivery) -> BoxFuture<'a, Result<(), InterceptorError>> {
        let _ = delivery;
        Box::pin(std::future::ready(Ok(())))
    }

    /// Runs after the handler, before the outcome is settled.
    fn after<'a>(
        &'a self,
        delivery: &'a Delivery,
        outcome: &'a Outcome,
    ) -> BoxFuture<'a, Result<(), InterceptorError>> {
        let _ = (delivery, outcome);
        Box::pin(std::future::ready(Ok(())))
    }
}

impl<T: Interceptor + ?Sized> Interceptor for Arc<T> {
    fn before<'a>(&'a self, delivery: &'a Delivery) -> BoxFuture<'a, Result<(), InterceptorError>> {
        (**self).before(delivery)
    }

    fn after<'a>(
        &'a self,
        delivery: &'a Delivery,
        outcome: &'a Outcome,
    ) -> BoxFuture<'a, Result<(), InterceptorError>> {
        (**self).after(delivery, outcome)
    }
}

struct Before<F>(F);

impl<F, R> Interceptor for Before<F>
where
    F: Fn(Delivery) -> R + Send + Sync + 'static,
    R: Future<Output = Result<(), InterceptorError>> + Send + 'static,
{
    fn before<'a>(&'a self, delivery: &'a Delivery) -> BoxFuture<'a, Result<(), InterceptorError>> {
        Box::pin((self.0)(delivery.clone()))
    }
}

struct After<F>(F);

impl<F, R> Interceptor for After<F>
where
    F: Fn(Delivery, Outcome) -> R + Send + Sync + 'static,
    R: Future<Output = Result<(), InterceptorError>> + Send + 'static,
{
    fn after<'a>(
        &'a self,
        delivery: &'a Delivery,
        outcome: &'a Outcome,
    ) -> BoxFuture<'a, Result<(), InterceptorError>> {
        Box::pin((self.0)(delivery.clone(), outcome.clone()))
    }
}

/// A function that runs before every delivery.
///
/// ```
/// use postrider_core::{Delivery, interceptor};
/// let no_tests = interceptor::before(async |delivery: Delivery| {
///     if delivery.tenant_id() == Some("test") { Err("test tenants are not delivered")?; }
///     Ok(())
/// });
/// # let _ = no_tests;
/// ```
pub fn before<F, R>(function: F) -> Arc<dyn Interceptor>
where
    F: Fn(Delivery) -> R + Send + Sync + 'static,
    R: Future<Output = Result<(), InterceptorError>> + Send + 'static,
{
    Arc::new(Before(function))
}

/// A function that runs after every delivery.
///
/// ```
/// use postrider_core::{Delivery, Outcome, interceptor};
/// let audit = interceptor::after(async |delivery: Delivery, outcome: Outcome| {
///     println!("{} {outcome:?}", delivery.id());
///     Ok(())
/// });
/// # let _ = audit;
/// ```
pub fn after<F, R>(function: F) -> Arc<dyn Interceptor>
where
    F: Fn(Delivery, Outcome) -> R + Send + Sync + 'static,
    R: Future<Output = Result<(), InterceptorError>> + Send + 'static,
{
    Arc::new(After(function))
}
