use postrider_macros::{AggregateType, EventType};

#[derive(EventType)]
struct Order {
    id: u64,
}

#[derive(AggregateType)]
union Either {
    small: u8,
    large: u64,
}

fn main() {}
