//! What both derives share: attributes, checks, and the code that comes out.

use crate::mistakes::Mistakes;
use crate::name::{self, Case};
use proc_macro2::{Span, TokenStream};
use quote::{ToTokens, format_ident, quote};
use syn::ext::IdentExt;
use syn::meta::ParseNestedMeta;
use syn::{Attribute, Data, DataEnum, DeriveInput, Error, LitStr, Result, Variant};

/// In what the two derives differ.
pub(crate) struct Kind {
    trait_name: &'static str,
    attribute: &'static str,
    constant: &'static str,
    /// The limit of the core, in characters. It is written again here so that building a derive does
    /// not build the core; `tests/derive.rs` holds the two together.
    pub(crate) chars_max: usize,
}

pub(crate) const EVENT_TYPE: Kind =
    Kind { trait_name: "EventType", attribute: "event_type", constant: "EVENT_TYPES", chars_max: 128 };

pub(crate) const AGGREGATE_TYPE: Kind = Kind {
    trait_name: "AggregateType",
    attribute: "aggregate_type",
    constant: "AGGREGATE_TYPES",
    chars_max: 64,
};

/// The implementation for this enum, or the compile errors that say why there is none.
pub(crate) fn expand(kind: &Kind, input: TokenStream) -> TokenStream {
    syn::parse2(input).and_then(|input| implement(kind, &input)).unwrap_or_else(Error::into_compile_error)
}

fn implement(kind: &Kind, input: &DeriveInput) -> Result<TokenStream> {
    let variants = &variants_of(kind, input)?.variants;
    let names = names(kind, input, variants.iter())?;

    let (impl_generics, type_generics, where_clause) = input.generics.split_for_impl();
    let (enum_name, trait_name) = (&input.ident, format_ident!("{}", kind.trait_name));
    let constant = format_ident!("{}", kind.constant);
    let doc = format!("The names of all variants, as `{trait_name}::name` gives them, in their order.");
    // A reference to an enum without variants still counts as inhabited.
    let body = if variants.is_empty() {
        quote!(match *self {})
    } else {
        let variants = variants.iter().map(|variant| &variant.ident);
        quote!(match self { #(Self::#variants { .. } => #names,)* })
    };

    Ok(quote! {
        #[automatically_derived]
        impl #impl_generics ::postrider::#trait_name for #enum_name #type_generics #where_clause {
            fn name(&self) -> &str {
                #body
            }
        }

        #[automatically_derived]
        #[allow(dead_code, unreachable_pub)]
        impl #impl_generics #enum_name #type_generics #where_clause {
            #[doc = #doc]
            pub const #constant: &'static [&'static str] = &[#(#names),*];
        }
    })
}

fn variants_of<'a>(kind: &Kind, input: &'a DeriveInput) -> Result<&'a DataEnum> {
    let (keyword, word): (&dyn ToTokens, _) = match &input.data {
        Data::Enum(data) => return Ok(data),
        Data::Struct(data) => (&data.struct_token, "struct"),
        Data::Union(data) => (&data.union_token, "union"),
    };
    let trait_name = kind.trait_name;
    Err(Error::new_spanned(
        keyword,
        format!(
            "`{trait_name}` can be derived for an enum, whose variants are the names; this is a {word} \
             (implement `postrider::{trait_name}` by hand, or pass a string)"
        ),
    ))
}

/// The name of each variant, all of them good and no two the same; every mistake is reported at once.
fn names<'a>(
    kind: &Kind,
    input: &DeriveInput,
    variants: impl Iterator<Item = &'a Variant>,
) -> Result<Vec<String>> {
    let mut mistakes = Mistakes::default();
    let case = mistakes.note(rename_all(kind, &input.attrs)).flatten();

    let mut names: Vec<(String, &syn::Ident)> = Vec::new();
    for variant in variants {
        mistakes.note(refuse_on_fields(kind, variant));
        let Some((name, span)) = mistakes.note(name_of(kind, case, variant)) else { continue };
        if let Err(why) = name::check(&name, kind.chars_max) {
            mistakes.add(Error::new(span, why));
        } else if let Some((_, first)) = names.iter().find(|(taken, _)| *taken == name) {
            mistakes.add(Error::new(
                span,
                format!("the name {name:?} is taken by the variant `{first}`; each variant needs its own"),
            ));
        } else {
            names.push((name, &variant.ident));
        }
    }
    mistakes.into_result()?;
    Ok(names.into_iter().map(|(name, _)| name).collect())
}

/// The name of a variant, and where a mistake in it is shown.
fn name_of(kind: &Kind, case: Option<Case>, variant: &Variant) -> Result<(String, Span)> {
    let mut given = None;
    read(kind, &variant.attrs, "on a variant", "name", &mut given)?;
    Ok(match given {
        Some(text) => (text.value(), text.span()),
        None => {
            let identifier = variant.ident.unraw().to_string();
            (case.map_or_else(|| identifier.clone(), |case| case.apply(&identifier)), variant.ident.span())
        }
    })
}

fn rename_all(kind: &Kind, attributes: &[Attribute]) -> Result<Option<Case>> {
    let mut given = None;
    read(kind, attributes, "on the enum", "rename_all", &mut given)?;
    given
        .map(|text: LitStr| Case::parse(&text.value()).map_err(|why| Error::new(text.span(), why)))
        .transpose()
}

/// Reads `#[attribute(key = "…")]`; any other key, and the same key twice, is a mistake.
fn read(
    kind: &Kind,
    attributes: &[Attribute],
    place: &str,
    key: &str,
    given: &mut Option<LitStr>,
) -> Result<()> {
    for attribute in attributes.iter().filter(|attribute| attribute.path().is_ident(kind.attribute)) {
        attribute.parse_nested_meta(|meta| {
            if !meta.path.is_ident(key) {
                return Err(unknown_key(kind, &meta, place, key));
            }
            if given.is_some() {
                return Err(meta.error(format!("`{key}` is given twice")));
            }
            *given = Some(meta.value()?.parse()?);
            Ok(())
        })?;
    }
    Ok(())
}

fn unknown_key(kind: &Kind, meta: &ParseNestedMeta<'_>, place: &str, allowed: &str) -> Error {
    let key = meta.path.to_token_stream().to_string().replace(' ', "");
    let attribute = kind.attribute;
    meta.error(format!("unknown key `{key}`; {place} `#[{attribute}({allowed} = \"…\")]` is allowed"))
}

/// The compiler lets a derive's attribute stand on fields too, where it would do nothing.
fn refuse_on_fields(kind: &Kind, variant: &Variant) -> Result<()> {
    let mut attributes = variant.fields.iter().flat_map(|field| &field.attrs);
    match attributes.find(|attribute| attribute.path().is_ident(kind.attribute)) {
        Some(attribute) => Err(Error::new_spanned(
            attribute,
            format!("`{}` is allowed on the enum and on its variants, not on a field", kind.attribute),
        )),
        None => Ok(()),
    }
}
