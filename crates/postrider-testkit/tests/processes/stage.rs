//! The database, three seats for instances with a proxy each, the history, and those who write.

use std::{
    fs,
    path::{Path, PathBuf},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use postrider_testkit::{conformance::Failure, proxy::Proxy};

use crate::{
    database::{Database, Kind},
    history::{Entry, Pen, Reader, What},
    instance::{history, mended},
    process::{Process, WrongClock},
    time::{TIMEOUT, until},
};

/// Most dead letters that the operator looks at at once.
const DEAD_MAX: usize = 1000;

/// A place that one instance after the other has.
pub(crate) struct Seat {
    letter: char,
    started: u32,
    shift_s: i64,
    pub(crate) proxy: Proxy,
    process: Option<Process>,
}

impl Seat {
    pub(crate) fn process(&self) -> Result<&Process, Failure> {
        self.process.as_ref().ok_or_else(|| format!("nobody has the seat {}", self.letter).into())
    }

    pub(crate) fn name(&self) -> Result<String, Failure> {
        Ok(self.process()?.name.clone())
    }

    pub(crate) fn take_process(&mut self) -> Result<Process, Failure> {
        self.process.take().ok_or_else(|| format!("nobody has the seat {}", self.letter).into())
    }
}

pub(crate) struct Stage {
    pub(crate) seats: [Seat; 3],
    pub(crate) writers: Proxy,
    pub(crate) database: Database,
    pub(crate) folder: PathBuf,
    pub(crate) reader: Reader,
    pen: Pen,
    clock: WrongClock,
}

impl Stage {
    pub(crate) async fn set(kind: Kind, folder: &Path) -> Result<Self, Failure> {
        let _left_behind = fs::remove_dir_all(folder);
        fs::create_dir_all(folder)?;
        let database = Database::create(kind).await?;
        let pen = Pen::open(&history(folder), "test")?;
        let seat = async |letter, shift_s| -> Result<Seat, Failure> {
            Ok(Seat {
                letter,
                started: 0,
                shift_s,
                proxy: Proxy::start(database.address()?).await?,
                process: None,
            })
        };
        // The clock of the third is an hour fast.
        let seats = [seat('a', 0).await?, seat('b', 0).await?, seat('c', 3600).await?];
        Ok(Self {
            seats,
            writers: Proxy::start(database.address()?).await?,
            database,
            reader: Reader::open(&history(folder))?,
            folder: folder.to_owned(),
            pen,
            clock: WrongClock::build(folder)?,
        })
    }

    pub(crate) fn seat(&self, seat: usize) -> Result<&Seat, Failure> {
        self.seats.get(seat).ok_or_else(|| "no such seat".into())
    }

    pub(crate) fn seat_mut(&mut self, seat: usize) -> Result<&mut Seat, Failure> {
        self.seats.get_mut(seat).ok_or_else(|| "no such seat".into())
    }

    /// Starts the next instance on a seat, and waits until it has begun and believes in the time that it should.
    pub(crate) async fn start(&mut self, seat: usize) -> Result<(), Failure> {
        let (folder, clock) = (self.folder.clone(), self.clock.clone());
        let mark = self.mark()?;
        let address = self.seat(seat)?.proxy.address().to_string();
        let url = self.database.url(&address)?;
        let seat = self.seat_mut(seat)?;
        seat.started += 1;
        let (name, shift_s) = (format!("{}{}", seat.letter, seat.started), seat.shift_s);
        seat.process = Some(Process::start(name.clone(), &url, &folder, &clock, shift_s)?);
        let unix_s = self
            .said(mark, "it begins", |entry| match entry.what {
                What::Started { unix_s } if entry.by == name => Some(unix_s),
                _ => None,
            })
            .await?;
        let right = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs();
        let off = i64::try_from(unix_s)? - i64::try_from(right)? - shift_s;
        if off.abs() > 60 { Err(format!("the clock of {name} is off by {off} s").into()) } else { Ok(()) }
    }

    /// From now on the clock of an instance that starts on this seat is wrong by so much.
    pub(crate) fn shift_clock(&mut self, seat: usize, shift_s: i64) -> Result<(), Failure> {
        self.seat_mut(seat)?.shift_s = shift_s;
        Ok(())
    }

    /// Writes down what is done, and to whom.
    pub(crate) fn fault(&self, what: &str, whom: &str) -> Result<(), Failure> {
        self.pen.note(&What::Fault { what: format!("{what}:{whom}") })
    }

    /// How much of the history there is.
    pub(crate) fn mark(&mut self) -> Result<usize, Failure> {
        Ok(self.reader.read_on()?.len())
    }

    /// Waits until the history says something after a mark.
    pub(crate) async fn said<T>(
        &mut self,
        mark: usize,
        what: &str,
        said: impl Fn(&Entry) -> Option<T>,
    ) -> Result<T, Failure> {
        until(what, TIMEOUT, async || Ok(self.reader.after(mark)?.iter().find_map(&said))).await
    }

    /// Waits until the database knows of no lane that this instance holds: others have taken them all.
    pub(crate) async fn taken_over(&self, name: &str) -> Result<(), Failure> {
        let what = format!("others take the lanes of {name}");
        until(&what, TIMEOUT, async || Ok(self.database.lanes_of(name).await?.is_empty().then_some(()))).await
    }

    /// Waits until everybody has lanes and delivers.
    pub(crate) async fn recovered(&mut self) -> Result<(), Failure> {
        for seat in 0..self.seats.len() {
            let name = self.seat(seat)?.name()?;
            let what = format!("{name} has lanes");
            // A query may meet a session that was just ended.
            let lanes =
                async || Ok(self.database.lanes_of(&name).await.ok().filter(|lanes| !lanes.is_empty()));
            until(&what, TIMEOUT, lanes).await?;
            let mark = self.mark()?;
            let delivers = |entry: &Entry| {
                (entry.by == name && matches!(entry.what, What::Delivered { .. })).then_some(())
            };
            self.said(mark, &format!("{name} delivers"), delivers).await?;
        }
        Ok(())
    }

    /// Waits until so many deliveries were made.
    pub(crate) async fn delivered(&mut self, count: usize, within: Duration) -> Result<(), Failure> {
        let (mut seen, mut delivered) = (0, 0);
        until(&format!("{count} events are delivered"), within, async || {
            let entries = self.reader.after(seen)?;
            seen += entries.len();
            delivered += entries.iter().filter(|entry| matches!(entry.what, What::Delivered { .. })).count();
            Ok((delivered >= count).then_some(()))
        })
        .await
    }

    /// The operator discards every second dead letter; its key goes on without it.
    pub(crate) async fn discard_some(&self) -> Result<(), Failure> {
        let dead = self.database.store.dead(0, DEAD_MAX).await?;
        for letter in dead.iter().step_by(2) {
            self.pen.note(&What::Discarding { id: letter.id.to_string() })?;
            self.database.store.discard(std::slice::from_ref(&letter.id)).await?;
        }
        Ok(())
    }

    /// What was broken at the receivers is mended, and the operator redrives whatever is dead until all is delivered.
    pub(crate) async fn drain(&self, within: Duration) -> Result<(), Failure> {
        fs::write(mended(&self.folder), "")?;
        let store = &self.database.store;
        until("all is delivered", within, async || {
            let dead: Vec<_> = store.dead(0, DEAD_MAX).await?.into_iter().map(|letter| letter.id).collect();
            store.redrive(&dead).await?;
            let stats = store.stats().await?;
            Ok((stats.pending + stats.dead + stats.held_keys == 0).then_some(()))
        })
        .await
        .map_err(|error| error.to_string().into())
    }
}
