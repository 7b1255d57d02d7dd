//! `#[publish(…)]`: the `Ok` value of a function becomes an event, in the transaction that the function was given.
//!
//! The function stays what it is: same name, same parameters, same result. Its body moves into an async block, so that `return`
//! and `?` in it end the body and not the function; what comes out of it is matched, written and returned.

mod arguments;

use arguments::Arguments;
use proc_macro2::{Span, TokenStream};
use quote::{format_ident, quote, quote_spanned};
use syn::spanned::Spanned;
use syn::visit_mut::{self, VisitMut};
use syn::{Error, Expr, FnArg, Ident, ItemFn, Pat, PatIdent, Result, ReturnType, Signature, Token, Type};

/// The function that also publishes; or the function as it was, with the compile errors that say why it does not.
pub(crate) fn expand(arguments: TokenStream, function: TokenStream) -> TokenStream {
    let expanded = syn::parse2::<ItemFn>(function.clone())
        .map_err(|error| Error::new(error.span(), "`#[publish]` stands on an `async fn` with a body"))
        .and_then(|function| publishing(&syn::parse2(arguments)?, function));
    expanded.unwrap_or_else(|error| {
        let error = error.into_compile_error();
        quote!(#error #function)
    })
}

fn publishing(arguments: &Arguments, mut function: ItemFn) -> Result<TokenStream> {
    if function.sig.asyncness.is_none() {
        return Err(Error::new_spanned(
            function.sig.fn_token,
            "`#[publish]` writes the event with await, so the function must be an `async fn`",
        ));
    }
    let returned = returned(&function.sig)?;
    let transaction = Transaction::of(arguments, &mut function.sig)?;
    let body = &function.block;
    let written = written(arguments, &transaction, returned.span());

    let Transaction { name, mutable, kept, again } = &transaction;
    let (outcome, never) = (local("outcome"), local("never"));
    let outbox = arguments.outbox.as_ref().map(|given| {
        let outbox = local("outbox");
        quote_spanned!(given.span()=> let #outbox = <::postrider::Outbox as ::core::clone::Clone>::clone(&#given);)
    });
    function.block = syn::parse_quote!({
        #outbox
        let #kept = #name;
        let #outcome = {
            #[allow(unused_variables)]
            let #mutable #name = #again;
            async move {
                // An async block cannot name its type, and without it nothing in the body would be coerced to it. (An async
                // closure can, but coerces no more, and borrows what it owns: a parameter that is not `Sync` would take
                // `Send` from the future.)
                #[allow(unreachable_code, clippy::all, clippy::pedantic)]
                if false {
                    let #never: #returned = loop {};
                    return #never;
                }
                #body
            }
            .await
        };
        #written
    });
    Ok(quote!(#function))
}

/// What follows the body: what came out of it is written, or its error passed on.
fn written(arguments: &Arguments, transaction: &Transaction, returned: Span) -> TokenStream {
    // What does not fit the types shows at the return type: it is the value and the error there that do not.
    let there = Span::mixed_site().located_at(returned);
    let [outcome, value, event, built, error] =
        ["outcome", "value", "event", "built", "error"].map(|name| Ident::new(name, there));

    let build = |reference: TokenStream| {
        let event_type = &arguments.event_type;
        let details = details(arguments, &reference);
        let json = quote_spanned!(there=> ::postrider::Event::json(#event_type, #reference));
        if details.is_empty() { json } else { quote!(#json.map(|#built| #built #details)) }
    };
    let (events, write) = if arguments.each {
        let built = build(quote!(#event));
        let collected = quote!(::std::vec::Vec<::core::result::Result<_, ::postrider::EventError>>);
        (
            quote_spanned!(there=> let #event: #collected = #value.iter().map(|#event| #built).collect();),
            "write_all",
        )
    } else {
        let built = build(quote_spanned!(there=> &#value));
        (quote_spanned!(there=> let #event = #built;), "write")
    };
    // And a transaction that cannot be written to shows at its name.
    let Transaction { kept, again, .. } = transaction;
    let write = Ident::new(write, kept.span());
    let write = match &arguments.outbox {
        Some(_) => {
            let outbox = Ident::new("outbox", kept.span());
            quote_spanned!(kept.span()=> #outbox.#write(#again, #event))
        }
        None => quote_spanned!(kept.span()=> #kept.#write(#event)),
    };
    quote_spanned! {there=>
        match #outcome {
            ::core::result::Result::Ok(#value) => {
                // A function that names the type of the value, so that a closure need not.
                #[allow(dead_code)]
                fn __postrider_of<'a, T: ?::core::marker::Sized, R>(
                    value: &'a T,
                    part: impl ::core::ops::FnOnce(&'a T) -> R,
                ) -> R {
                    part(value)
                }
                #events
                match #write.await {
                    ::core::result::Result::Ok(_) => ::core::result::Result::Ok(#value),
                    ::core::result::Result::Err(#error) => {
                        ::core::result::Result::Err(::core::convert::From::from(#error))
                    }
                }
            }
            ::core::result::Result::Err(#error) => ::core::result::Result::Err(#error),
        }
    }
}

/// The calls that give the event what was asked for beside its type.
fn details(arguments: &Arguments, reference: &TokenStream) -> TokenStream {
    let part = |given: &Expr| match given {
        Expr::Closure(_) => quote!(__postrider_of(#reference, #given)),
        other => quote!(#other),
    };
    let text = |given: &Expr| {
        let part = part(given);
        quote_spanned!(given.span()=> ::std::string::ToString::to_string(&#part))
    };
    let aggregate = arguments.aggregate.as_ref().map(|(kind, id)| {
        let id = text(id);
        quote!(.aggregate(#kind, #id))
    });
    let key = arguments.key.as_ref().map(text).map(|key| quote!(.key(#key)));
    let tenant = arguments.tenant.as_ref().map(text).map(|tenant| quote!(.tenant(#tenant)));
    quote!(#aggregate #key #tenant)
}

/// The parameter that the event is written through.
struct Transaction {
    name: Ident,
    mutable: Option<Token![mut]>,
    /// What it is called while the body has its name.
    kept: Ident,
    /// A reborrow, or a copy, of what is kept.
    again: TokenStream,
}

impl Transaction {
    /// Finds the parameter. A `mut` before its name goes with the name into the body.
    fn of(arguments: &Arguments, signature: &mut Signature) -> Result<Self> {
        let wanted = arguments.tx.clone().unwrap_or_else(|| format_ident!("tx"));
        for input in &mut signature.inputs {
            let FnArg::Typed(input) = input else { continue };
            let Pat::Ident(PatIdent { ident, mutability, .. }) = &mut *input.pat else { continue };
            if *ident != wanted {
                continue;
            }
            let kept = Ident::new("kept", Span::mixed_site().located_at(ident.span()));
            let again = match bare(&input.ty) {
                Type::Reference(reference) if reference.mutability.is_some() => quote!(&mut *#kept),
                Type::Reference(_) => quote!(#kept),
                other => return Err(Error::new_spanned(other, NO_REFERENCE)),
            };
            return Ok(Self { name: ident.clone(), mutable: mutability.take(), kept, again });
        }
        Err(match &arguments.tx {
            Some(named) => Error::new(named.span(), format!("the function has no parameter `{named}`")),
            None => Error::new(
                signature.paren_token.span.join(),
                "the function has no parameter `tx`; if its transaction is called otherwise, say `tx = …`",
            ),
        })
    }
}

const NO_REFERENCE: &str = "the transaction is taken by reference: `&mut Tx<…>`, or with `outbox = …` what the driver \
                            calls a transaction, such as `&mut Transaction<'_, Sqlite>`";

/// A type without the invisible groups that a macro puts around what it was given.
fn bare(of: &Type) -> &Type {
    match of {
        Type::Group(group) => bare(&group.elem),
        Type::Paren(paren) => bare(&paren.elem),
        other => other,
    }
}

/// The return type as a `let` may say it: `impl …` is left to be inferred.
fn returned(signature: &Signature) -> Result<Type> {
    struct Infer;
    impl VisitMut for Infer {
        fn visit_type_mut(&mut self, of: &mut Type) {
            match of {
                Type::ImplTrait(_) => {
                    *of = Type::Infer(syn::TypeInfer { underscore_token: Token![_](of.span()) })
                }
                other => visit_mut::visit_type_mut(self, other),
            }
        }
    }
    match &signature.output {
        ReturnType::Type(_, returned) => {
            let mut returned = (**returned).clone();
            Infer.visit_type_mut(&mut returned);
            Ok(returned)
        }
        ReturnType::Default => Err(Error::new_spanned(
            &signature.ident,
            "`#[publish]` writes the `Ok` value of a function, so it must return a `Result`",
        )),
    }
}

/// A name that no name of the caller's can meet.
fn local(name: &str) -> Ident {
    Ident::new(name, Span::mixed_site())
}
