use postrider_macros::{AggregateType, EventType};

#[derive(EventType)]
enum Given {
    Placed,
    #[event_type(name = "Placed")]
    Shipped,
}

#[derive(AggregateType)]
#[aggregate_type(rename_all = "snake_case")]
enum Renamed {
    HTTPRequest,
    HttpRequest,
}

fn main() {}
