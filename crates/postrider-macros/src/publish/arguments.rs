//! What stands in the parentheses of `#[publish(…)]`.

use crate::derive::{AGGREGATE_TYPE, EVENT_TYPE};
use crate::mistakes::Mistakes;
use crate::name;
use proc_macro2::Span;
use syn::ext::IdentExt;
use syn::parse::{Parse, ParseStream};
use syn::{Error, Expr, ExprLit, ExprTuple, Ident, Lit, Result, Token};

const KEYS: &str = "`event_type`, `aggregate`, `key`, `tenant`, `each`, `tx` and `outbox`";

/// Everything that was given, checked as far as it can be without types.
pub(crate) struct Arguments {
    /// A string literal, or the path of an event type.
    pub(crate) event_type: Expr,
    /// The type of the aggregate, and its id.
    pub(crate) aggregate: Option<(Expr, Expr)>,
    pub(crate) key: Option<Expr>,
    pub(crate) tenant: Option<Expr>,
    /// One event for each element of the value.
    pub(crate) each: bool,
    /// The parameter that is the transaction, where it is not called `tx`.
    pub(crate) tx: Option<Ident>,
    /// The outbox, where the transaction is the caller's.
    pub(crate) outbox: Option<Expr>,
}

#[derive(Default)]
struct Given {
    event_type: Option<Expr>,
    aggregate: Option<Expr>,
    key: Option<Expr>,
    tenant: Option<Expr>,
    each: bool,
    tx: Option<Ident>,
    outbox: Option<Expr>,
}

impl Parse for Arguments {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        let mut given = Given::default();
        while !input.is_empty() {
            let key = input.call(Ident::parse_any)?;
            given.take(&key, input)?;
            if !input.is_empty() {
                input.parse::<Token![,]>()?;
            }
        }
        given.check()
    }
}

impl Given {
    fn take(&mut self, key: &Ident, input: ParseStream<'_>) -> Result<()> {
        match key.to_string().as_str() {
            "event_type" => once(key, &mut self.event_type, value(key, input)?),
            "aggregate" => once(key, &mut self.aggregate, value(key, input)?),
            "key" => once(key, &mut self.key, value(key, input)?),
            "tenant" => once(key, &mut self.tenant, value(key, input)?),
            "outbox" => once(key, &mut self.outbox, value(key, input)?),
            "tx" => once(key, &mut self.tx, value(key, input)?),
            "each" if self.each => Err(twice(key)),
            "each" => {
                self.each = true;
                Ok(())
            }
            unknown => Err(Error::new(key.span(), format!("unknown key `{unknown}`; allowed are {KEYS}"))),
        }
    }

    fn check(self) -> Result<Arguments> {
        let mut mistakes = Mistakes::default();
        let event_type = mistakes.note(match self.event_type {
            Some(given) => event_type(given),
            None => Err(Error::new(
                Span::call_site(),
                "the event needs a type: `#[publish(event_type = \"…\")]`, or the path of an `EventType`",
            )),
        });
        let aggregate = mistakes.note(self.aggregate.map(aggregate).transpose()).flatten();
        mistakes.into_result()?;
        let Some(event_type) = event_type else {
            return Err(Error::new(Span::call_site(), "the event needs a type"));
        };
        let Self { key, tenant, each, tx, outbox, .. } = self;
        Ok(Arguments { event_type, aggregate, key, tenant, each, tx, outbox })
    }
}

/// The value behind a key.
fn value<T: Parse>(key: &Ident, input: ParseStream<'_>) -> Result<T> {
    if !input.peek(Token![=]) {
        return Err(Error::new(key.span(), format!("`{key}` needs a value: `{key} = …`")));
    }
    input.parse::<Token![=]>()?;
    input.parse()
}

fn once<T>(key: &Ident, place: &mut Option<T>, value: T) -> Result<()> {
    match place.replace(value) {
        Some(_) => Err(twice(key)),
        None => Ok(()),
    }
}

fn twice(key: &Ident) -> Error {
    Error::new(key.span(), format!("`{key}` is given twice"))
}

fn event_type(given: Expr) -> Result<Expr> {
    match &given {
        Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) => {
            name::check(&text.value(), EVENT_TYPE.chars_max).map_err(|why| Error::new(text.span(), why))?;
            Ok(given)
        }
        Expr::Path(_) => Ok(given),
        _ => Err(Error::new_spanned(
            given,
            "an event type is a string literal or the path of an `EventType`, such as `Happened::OrderPlaced`",
        )),
    }
}

fn aggregate(given: Expr) -> Result<(Expr, Expr)> {
    const WANTED: &str = "an aggregate is its type and its id: `(\"Order\", |order| order.id)`";
    let Expr::Tuple(ExprTuple { elems, .. }) = &given else {
        return Err(Error::new_spanned(given, WANTED));
    };
    let mut parts = elems.iter();
    let (Some(kind), Some(id), None) = (parts.next(), parts.next(), parts.next()) else {
        return Err(Error::new_spanned(given, WANTED));
    };
    if let Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) = kind {
        name::check(&text.value(), AGGREGATE_TYPE.chars_max).map_err(|why| Error::new(text.span(), why))?;
    }
    Ok((kind.clone(), id.clone()))
}
