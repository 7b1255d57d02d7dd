use postrider_macros::{AggregateType, EventType};

#[derive(EventType)]
#[event_type(name = "order")]
enum OnTheEnum {
    Placed,
}

#[derive(AggregateType)]
enum OnAVariant {
    #[aggregate_type(rename = "order")]
    Order,
    #[aggregate_type(name = "client", name = "customer")]
    Customer,
    #[aggregate_type]
    Parcel,
    #[aggregate_type(name = 7)]
    Seven,
}

#[derive(EventType)]
enum OnAField {
    Placed(#[event_type(name = "total")] u64),
}

#[derive(EventType)]
#[event_type(rename_all = "Train-Case")]
enum UnknownCase {
    Placed,
}

fn main() {}
