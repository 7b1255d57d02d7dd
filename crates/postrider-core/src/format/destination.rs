//! Where in the outside system an event goes: a topic, an exchange, a subject, a stream, a path, named by a template.

use std::{borrow::Cow, collections::BTreeMap, error::Error as StdError, fmt, str::FromStr};

use crate::{ConfigError, Event, GLOBAL_AGGREGATE, Pattern};

/// The name of the place that an event goes to, in the outside system of a sink: the same for all events, made of what the event
/// says, or given for single event types.
///
/// A template may hold `{event_type}`, `{aggregate_type}`, `{aggregate_id}` and `{tenant_id}`; `{{` and `}}` stand for braces.
/// An event of a type that has a template [of its own](Self::for_type) takes that instead; what the event's
/// [route](Self::for_route) says comes before both.
///
/// ```
/// use postrider_core::{Event, format::Destination};
///
/// let topic = Destination::new("shop.{aggregate_type}")?.for_type("OrderPlaced", "orders-{tenant_id}")?;
/// let paid = Event::json_text("InvoicePaid", "{}").aggregate("Invoice", 7).build()?;
/// assert_eq!(topic.resolve(&paid)?, "shop.Invoice");
/// let placed = Event::json_text("OrderPlaced", "{}").tenant("acme").build()?;
/// assert_eq!(topic.resolve(&placed)?, "orders-acme");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Destination {
    default: Template,
    by_type: BTreeMap<String, Template>,
    /// In the order in which an event finds its route.
    by_route: Vec<RoutePlace>,
}

/// What a route says of the place of its events.
#[derive(Debug, Clone, PartialEq, Eq)]
struct RoutePlace {
    event_type: Pattern,
    aggregate_type: Pattern,
    /// None: as it is without the route.
    template: Option<Template>,
}

impl RoutePlace {
    /// Routes are looked through by this first: those of an exact pair of types, those of an exact event type, and patterns.
    fn rank(&self) -> u8 {
        match (self.event_type.exact(), self.aggregate_type.exact(), self.aggregate_type.is_any()) {
            (Some(_), Some(_), _) => 0,
            (Some(_), None, true) => 1,
            _ => 2,
        }
    }

    fn fits(&self, event: &Event) -> bool {
        self.event_type.matches(event.event_type()) && self.aggregate_type.matches(event.aggregate_type())
    }
}

impl Destination {
    /// By this template.
    pub fn new(template: &str) -> Result<Self, ConfigError> {
        Ok(Self { default: Template::parse(template)?, by_type: BTreeMap::new(), by_route: Vec::new() })
    }

    /// Events of this type go by a template of their own. The last one that is given for a type holds.
    pub fn for_type(mut self, event_type: &str, template: &str) -> Result<Self, ConfigError> {
        self.by_type.insert(event_type.to_owned(), Template::parse(template)?);
        Ok(self)
    }

    /// Events that a route wins go by its template, or, if it has none, by that of their type or the default. An event is won as
    /// from the routes of an outbox: by the exact pair of types, else by the exact event type, else by the first pattern that fits.
    /// So a sink that several routes share is to know all of them, also those without a template.
    ///
    /// ```
    /// use postrider_core::{Event, format::Destination};
    ///
    /// let topic = Destination::new("shop")?.for_route("Order*", "*", Some("orders"))?.for_route("OrderPlaced", "*", None)?;
    /// assert_eq!(topic.resolve(&Event::json_text("OrderPaid", "{}").build()?)?, "orders");
    /// assert_eq!(topic.resolve(&Event::json_text("OrderPlaced", "{}").build()?)?, "shop");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn for_route(
        mut self,
        event_type: impl Into<Pattern>,
        aggregate_type: impl Into<Pattern>,
        template: Option<&str>,
    ) -> Result<Self, ConfigError> {
        let template = template.map(Template::parse).transpose()?;
        let place =
            RoutePlace { event_type: event_type.into(), aggregate_type: aggregate_type.into(), template };
        let at = self.by_route.partition_point(|known| known.rank() <= place.rank());
        self.by_route.insert(at, place);
        Ok(self)
    }

    /// Where this event goes; or, if the template uses what the event does not have, why it goes nowhere. Such an event is
    /// rejected alone: no later attempt would find a place for it.
    pub fn resolve<'a>(&'a self, event: &'a Event) -> Result<Cow<'a, str>, String> {
        self.resolve_with(event, |value| Ok(value.into()))
    }

    /// The same, with what the event says put into the words of a protocol: escaped, or refused with the reason. What the template
    /// itself says stays as it is, so that an event can neither leave the place that was meant for it nor name another one.
    pub fn resolve_with<'a>(
        &'a self,
        event: &'a Event,
        spell: impl Fn(&'a str) -> Result<Cow<'a, str>, String>,
    ) -> Result<Cow<'a, str>, String> {
        self.template(event).resolve(event, spell)
    }

    fn template(&self, event: &Event) -> &Template {
        let route = self.by_route.iter().find(|route| route.fits(event));
        let own = || self.by_type.get(event.event_type()).unwrap_or(&self.default);
        route.and_then(|route| route.template.as_ref()).unwrap_or_else(own)
    }

    fn all(&self) -> impl Iterator<Item = &Template> {
        let by_route = self.by_route.iter().filter_map(|route| route.template.as_ref());
        std::iter::once(&self.default).chain(self.by_type.values()).chain(by_route)
    }

    /// The places that do not depend on the event, for a check before the first one comes.
    pub fn fixed(&self) -> impl Iterator<Item = &str> {
        self.all().filter_map(Template::fixed)
    }

    /// The templates as they were given, the default first.
    pub fn templates(&self) -> impl Iterator<Item = &str> {
        self.all().map(|template| template.given.as_str())
    }
}

impl FromStr for Destination {
    type Err = ConfigError;

    fn from_str(template: &str) -> Result<Self, ConfigError> {
        Self::new(template)
    }
}

/// What an event can say of its destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Field {
    EventType,
    AggregateType,
    AggregateId,
    TenantId,
}

impl Field {
    const ALL: [Self; 4] = [Self::EventType, Self::AggregateType, Self::AggregateId, Self::TenantId];

    const fn name(self) -> &'static str {
        match self {
            Self::EventType => "event_type",
            Self::AggregateType => "aggregate_type",
            Self::AggregateId => "aggregate_id",
            Self::TenantId => "tenant_id",
        }
    }

    fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|field| field.name() == name)
    }

    /// What the event says. The aggregate type that stands for none is none.
    fn of(self, event: &Event) -> Option<&str> {
        let value = match self {
            Self::EventType => Some(event.event_type()),
            Self::AggregateType => Some(event.aggregate_type()).filter(|name| *name != GLOBAL_AGGREGATE),
            Self::AggregateId => event.aggregate_id(),
            Self::TenantId => event.tenant_id(),
        };
        value.filter(|text| !text.is_empty())
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    Text(String),
    Field(Field),
}

/// One template, parsed.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Template {
    given: String,
    parts: Vec<Part>,
}

impl Template {
    fn parse(given: &str) -> Result<Self, ConfigError> {
        match parts(given) {
            Ok(parts) => Ok(Self { given: given.to_owned(), parts }),
            Err(error) => Err(ConfigError::Destination { template: given.to_owned(), error }),
        }
    }

    fn fixed(&self) -> Option<&str> {
        match self.parts.as_slice() {
            [Part::Text(text)] => Some(text),
            _ => None,
        }
    }

    fn resolve<'a>(
        &'a self,
        event: &'a Event,
        spell: impl Fn(&'a str) -> Result<Cow<'a, str>, String>,
    ) -> Result<Cow<'a, str>, String> {
        let mut name = Cow::Borrowed("");
        for part in &self.parts {
            let piece = match part {
                Part::Text(text) => Cow::Borrowed(text.as_str()),
                Part::Field(field) => {
                    let value = field.of(event).ok_or_else(|| self.lacks(*field))?;
                    spell(value).map_err(|reason| self.unspeakable(*field, value, &reason))?
                }
            };
            // `Cow` gives back the first piece itself, so that a name of one piece is not copied.
            name += piece;
        }
        Ok(name)
    }

    fn lacks(&self, field: Field) -> String {
        let (given, name) = (&self.given, field.name());
        format!(
            "the event has no {name}, and the destination {given:?} uses it: write it, or give its type a destination of its own"
        )
    }

    fn unspeakable(&self, field: Field, value: &str, reason: &str) -> String {
        let (given, name) = (&self.given, field.name());
        format!("the event's {name} {value:?} cannot be a part of the destination {given:?}: {reason}")
    }
}

/// Cuts a template into what it says itself and what events say.
fn parts(template: &str) -> Result<Vec<Part>, TemplateError> {
    let mut parts = Vec::new();
    let mut text = String::new();
    let mut rest = template;
    while let Some(at) = rest.find(['{', '}']) {
        let (before, from) = rest.split_at_checked(at).unwrap_or((rest, ""));
        text.push_str(before);
        if let Some(after) = from.strip_prefix("{{") {
            text.push('{');
            rest = after;
        } else if let Some(after) = from.strip_prefix("}}") {
            text.push('}');
            rest = after;
        } else if let Some(inside) = from.strip_prefix('{') {
            let (name, after) = inside.split_once('}').ok_or(TemplateError::Unclosed)?;
            let field =
                Field::named(name).ok_or_else(|| TemplateError::Unknown { placeholder: name.to_owned() })?;
            if !text.is_empty() {
                parts.push(Part::Text(std::mem::take(&mut text)));
            }
            parts.push(Part::Field(field));
            rest = after;
        } else {
            return Err(TemplateError::Unopened);
        }
    }
    text.push_str(rest);
    if !text.is_empty() {
        parts.push(Part::Text(text));
    }
    if parts.is_empty() { Err(TemplateError::Empty) } else { Ok(parts) }
}

/// What is wrong with the template of a [`Destination`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum TemplateError {
    /// A placeholder has a name that means nothing.
    Unknown {
        /// The name.
        placeholder: String,
    },
    /// An opening brace has no closing one.
    Unclosed,
    /// A closing brace has no opening one.
    Unopened,
    /// There is nothing in it.
    Empty,
}

impl fmt::Display for TemplateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown { placeholder } => {
                write!(f, "there is no placeholder {{{placeholder}}}: use ")?;
                for (number, field) in Field::ALL.into_iter().enumerate() {
                    let before = match number {
                        0 => "",
                        _ if number + 1 == Field::ALL.len() => " or ",
                        _ => ", ",
                    };
                    write!(f, "{before}{{{}}}", field.name())?;
                }
                Ok(())
            }
            Self::Unclosed => f.write_str("a { is not closed: close it, or write {{ for a brace"),
            Self::Unopened => f.write_str("a } closes nothing: open it, or write }} for a brace"),
            Self::Empty => f.write_str("it is empty: name a place, or use placeholders"),
        }
    }
}

impl StdError for TemplateError {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::EventError;

    fn order() -> Result<Event, EventError> {
        Event::json_text("OrderPlaced", "{}").aggregate("Order", 42).tenant("acme").build()
    }

    fn wrong(template: &str) -> String {
        Destination::new(template).map_or_else(|error| error.to_string(), |found| format!("{found:?}"))
    }

    #[test]
    fn a_template_without_placeholders_is_the_place_itself_and_is_not_copied() -> Result<(), Box<dyn StdError>>
    {
        let destination = Destination::new("orders")?;
        let event = order()?;
        assert!(matches!(destination.resolve(&event)?, Cow::Borrowed("orders")));
        assert_eq!(destination.fixed().collect::<Vec<_>>(), ["orders"]);
        Ok(())
    }

    #[test]
    fn placeholders_are_what_the_event_says() -> Result<(), Box<dyn StdError>> {
        let event = order()?;
        let all = Destination::new("/{tenant_id}/{aggregate_type}/{aggregate_id}/{event_type}/end")?;
        assert_eq!(all.resolve(&event)?, "/acme/Order/42/OrderPlaced/end");
        assert_eq!(all.fixed().count(), 0);
        let alone: Destination = "{event_type}".parse()?;
        assert!(matches!(alone.resolve(&event)?, Cow::Borrowed("OrderPlaced")));
        Ok(())
    }

    #[test]
    fn doubled_braces_are_braces() -> Result<(), Box<dyn StdError>> {
        let event = order()?;
        let braces = Destination::new("{{{event_type}}}-{{event_type}}")?;
        assert_eq!(braces.resolve(&event)?, "{OrderPlaced}-{event_type}");
        Ok(())
    }

    #[test]
    fn an_event_type_with_a_destination_of_its_own_goes_there() -> Result<(), Box<dyn StdError>> {
        let destination = Destination::new("all")?
            .for_type("OrderPlaced", "first")?
            .for_type("OrderPlaced", "placed-{tenant_id}")?
            .for_type("Other", "others")?;
        let event = order()?;
        assert_eq!(destination.resolve(&event)?, "placed-acme");
        let similar = Event::json_text("OrderPlacedTwice", "{}").build()?;
        assert_eq!(destination.resolve(&similar)?, "all");
        assert_eq!(destination.fixed().collect::<Vec<_>>(), ["all", "others"]);
        assert_eq!(destination.templates().collect::<Vec<_>>(), ["all", "placed-{tenant_id}", "others"]);
        Ok(())
    }

    #[test]
    fn the_route_that_wins_an_event_says_where_it_goes() -> Result<(), Box<dyn StdError>> {
        let pattern = Destination::new("own")?.for_route("Order*", "*", Some("pattern"))?;
        let half = pattern.clone().for_route("OrderPlaced", "Or*", Some("half"))?;
        let exact = half.clone().for_route("OrderPlaced", "*", Some("exact"))?;
        let pair = exact.clone().for_route("OrderPlaced", "Order", Some("pair"))?;
        let event = order()?;
        for (destination, place) in
            [(&pattern, "pattern"), (&half, "pattern"), (&exact, "exact"), (&pair, "pair")]
        {
            assert_eq!(destination.resolve(&event)?, place);
        }
        assert_eq!(pair.fixed().collect::<Vec<_>>(), ["own", "pair", "exact", "pattern", "half"]);
        Ok(())
    }

    #[test]
    fn a_route_without_a_place_leaves_its_events_to_their_type_and_the_default()
    -> Result<(), Box<dyn StdError>> {
        let event = order()?;
        let silent = Destination::new("own")?.for_route("Order*", "*", Some("pattern"))?.for_route(
            "OrderPlaced",
            "*",
            None,
        )?;
        assert_eq!(silent.resolve(&event)?, "own");
        let typed = silent.for_type("OrderPlaced", "typed")?;
        assert_eq!(typed.resolve(&event)?, "typed");
        let named = typed.for_route("OrderPlaced", "Order", Some("pair"))?;
        assert_eq!(named.resolve(&event)?, "pair");
        Ok(())
    }

    #[test]
    fn an_event_that_lacks_what_its_destination_uses_goes_nowhere() -> Result<(), Box<dyn StdError>> {
        let plain = Event::json_text("Plain", "{}").build()?;
        for name in ["aggregate_type", "aggregate_id", "tenant_id"] {
            let destination = Destination::new(&format!("to-{{{name}}}"))?;
            let error = destination.resolve(&plain).err().unwrap_or_default();
            assert!(error.contains(&format!("the event has no {name}")), "{error}");
            assert!(error.contains(&format!("\"to-{{{name}}}\"")), "{error}");
        }
        Ok(())
    }

    #[test]
    fn a_protocol_spells_or_refuses_what_the_event_says_and_not_the_template() -> Result<(), Box<dyn StdError>>
    {
        let event = Event::json_text("a/b", "{}").build()?;
        let destination = Destination::new("x/{event_type}")?;
        let spelled = destination.resolve_with(&event, |value| Ok(value.replace('/', "%2F").into()))?;
        assert_eq!(spelled, "x/a%2Fb");
        let refused = destination.resolve_with(&event, |_| Err("it has a slash".to_owned()));
        let error = refused.err().unwrap_or_default();
        assert_eq!(
            error,
            "the event's event_type \"a/b\" cannot be a part of the destination \"x/{event_type}\": it has a slash"
        );
        Ok(())
    }

    #[test]
    fn a_wrong_template_says_what_is_wrong_and_what_can_be_used() {
        let unknown = wrong("orders-{tenant}");
        assert_eq!(
            unknown,
            "the destination \"orders-{tenant}\" cannot be used: there is no placeholder {tenant}: use {event_type}, \
             {aggregate_type}, {aggregate_id} or {tenant_id}"
        );
        for (template, hint) in
            [("a{", "not closed"), ("{event_type", "not closed"), ("a}b", "closes nothing"), ("", "empty")]
        {
            let error = wrong(template);
            assert!(error.contains(hint), "{template:?}: {error}");
        }
        assert!(wrong("{}").contains("no placeholder {}"));
        assert!(wrong("{ event_type }").contains("no placeholder { event_type }"));
    }
}
