//! What is done to the instances, one thing after the other, while everybody writes and delivers.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use postrider_testkit::{conformance::Failure, proxy::Direction};

use crate::{
    database::Held,
    history::{Entry, What},
    server::End,
    stage::Stage,
    time::{TIMEOUT, pass, until},
};

/// How long nobody can reach the database.
const OUTAGE: Duration = Duration::from_millis(1500);

/// How long a commit that was sent may take to be seen.
const COMMIT: Duration = Duration::from_millis(300);

/// A settle that has no answer for so long hangs.
const HANGS: Duration = Duration::from_millis(200);

/// How often an instance is stalled, at most, until a settle hangs.
const STALLS_MAX: usize = 50;

/// How often a reply is lost, at most, until it is that of a commit.
const LOST_REPLIES_MAX: usize = 400;

#[derive(Debug, Clone, Copy)]
pub(crate) enum Fault {
    KillWhileKeysWait,
    StopPastTheLease,
    PauseBeforeASettleArrives,
    PauseInsideASettle,
    LoseTheReplyToACommit,
    CutEverybody,
    EndEverySession,
    RestartTheServer,
    StopOneAndKillAnother,
    CrashTheServer,
    WrongClockTheOtherWay,
    EndWell,
}

/// The last one comes while the last events are being written.
pub(crate) const FAULTS: [Fault; 12] = [
    Fault::KillWhileKeysWait,
    Fault::StopPastTheLease,
    Fault::PauseBeforeASettleArrives,
    Fault::CutEverybody,
    Fault::WrongClockTheOtherWay,
    Fault::RestartTheServer,
    Fault::PauseInsideASettle,
    Fault::EndWell,
    Fault::LoseTheReplyToACommit,
    Fault::EndEverySession,
    Fault::StopOneAndKillAnother,
    Fault::CrashTheServer,
];

pub(crate) async fn play(stage: &mut Stage, fault: Fault) -> Result<(), Failure> {
    match fault {
        Fault::KillWhileKeysWait => kill_while_keys_wait(stage, 0).await,
        Fault::StopPastTheLease => stop_past_the_lease(stage, 1).await,
        Fault::PauseBeforeASettleArrives => pause_before_a_settle_arrives(stage, 2).await,
        Fault::PauseInsideASettle => pause_inside_a_settle(stage, 0).await,
        Fault::LoseTheReplyToACommit => lose_the_reply_to_a_commit(stage, 1).await,
        Fault::CutEverybody => cut_everybody(stage).await,
        Fault::EndEverySession => {
            stage.fault("ended", "all")?;
            stage.database.end_sessions().await
        }
        Fault::RestartTheServer => restart_the_server(stage, End::InOrder),
        Fault::StopOneAndKillAnother => stop_one_and_kill_another(stage, 0, 1).await,
        Fault::CrashTheServer => restart_the_server(stage, End::Crash),
        Fault::WrongClockTheOtherWay => {
            kill(stage, 2)?;
            stage.shift_clock(2, -3600)?;
            stage.start(2).await
        }
        Fault::EndWell => {
            stage.discard_some().await?;
            stage.seat_mut(1)?.take_process()?.end().await?;
            stage.start(1).await
        }
    }
}

/// SIGKILL at a moment when keys of its lanes wait for a retry and behind dead events; they still do when others have the lanes.
async fn kill_while_keys_wait(stage: &mut Stage, seat: usize) -> Result<(), Failure> {
    let name = stage.seat(seat)?.name()?;
    let of_reason =
        |held: &BTreeSet<Held>, word: &str| held.iter().filter(|(.., reason)| reason == word).count();
    let before =
        until("keys wait for a retry, and behind dead events that hold their keys", TIMEOUT, async || {
            let lanes = stage.database.lanes_of(&name).await?;
            let mut held = stage.database.held().await?;
            held.retain(|(lane, ..)| lanes.contains(lane));
            Ok((of_reason(&held, "retry") >= 2 && of_reason(&held, "dead") >= 1).then_some(held))
        })
        .await?;
    kill(stage, seat)?;
    stage.taken_over(&name).await?;
    let after: BTreeSet<Held> = stage.database.held().await?.intersection(&before).cloned().collect();
    if of_reason(&after, "retry") == 0 || of_reason(&after, "dead") == 0 {
        return Err(format!("no key waited through the take-over: {before:?}, then {after:?}").into());
    }
    stage.start(seat).await
}

/// SIGSTOP while a receiver is at work, SIGCONT when others have the lanes: its outcome must come to nothing.
async fn stop_past_the_lease(stage: &mut Stage, seat: usize) -> Result<(), Failure> {
    let (name, mark) = (stage.seat(seat)?.name()?, stage.mark()?);
    let begins = |entry: &Entry| (entry.by == name && matches!(entry.what, What::Begun { .. })).then_some(());
    stage.said(mark, "a receiver is at work", begins).await?;
    stage.seat(seat)?.process()?.signal("-STOP")?;
    stage.fault("stopped", &name)?;
    stage.taken_over(&name).await?;
    let mark = stage.mark()?;
    stage.fault("continued", &name)?;
    stage.seat(seat)?.process()?.signal("-CONT")?;
    fenced(stage, mark, &name).await
}

/// A settle is sent, and is on its way until others have the lane: it arrives with a token that is no longer good.
async fn pause_before_a_settle_arrives(stage: &mut Stage, seat: usize) -> Result<(), Failure> {
    let (name, mark) = (stage.seat(seat)?.name()?, stage.mark()?);
    let call = stall_a_settle(stage, seat, Direction::ToServer).await?;
    stage.taken_over(&name).await?;
    stage.seat(seat)?.proxy.flow(Direction::ToServer);
    let refused = |entry: &Entry| match entry.what {
        What::Refused { call: refused, .. } if entry.by == name && refused >= call => Some(()),
        _ => None,
    };
    stage.said(mark, "the settle is refused", refused).await?;
    fenced(stage, mark, &name).await
}

/// A settle begins, and the server's answers to it do not come: where it is more than one statement, its transaction stays open.
/// Others must be able to take the lanes all the same.
async fn pause_inside_a_settle(stage: &mut Stage, seat: usize) -> Result<(), Failure> {
    let name = stage.seat(seat)?.name()?;
    let call = stall_a_settle(stage, seat, Direction::ToClient).await?;
    stage.taken_over(&name).await?;
    let mark = stage.mark()?;
    stage.seat(seat)?.proxy.flow(Direction::ToClient);
    // If it was committed before the lanes were lost, that is what it hears; otherwise it was in vain.
    let ended = |entry: &Entry| match entry.what {
        What::Refused { call: ended, .. } | What::Settled { call: ended } if entry.by == name => {
            (ended >= call).then_some(())
        }
        What::Fenced { .. } if entry.by == name => Some(()),
        _ => None,
    };
    stage.said(mark, "the settle ends", ended).await
}

/// Stalls an instance at a moment when a settle of its hangs on that, and says which.
async fn stall_a_settle(stage: &mut Stage, seat: usize, direction: Direction) -> Result<u64, Failure> {
    let name = stage.seat(seat)?.name()?;
    stage.fault("stalled", &name)?;
    for _ in 0..STALLS_MAX {
        let mark = stage.mark()?;
        settling(stage, mark, &name).await?;
        stage.seat(seat)?.proxy.stall(direction);
        // What was through already ends soon, and another may begin.
        let mut open = None;
        let hangs = until("a settle hangs", HANGS * 5, async || {
            let now = open_settle(stage.reader.read_on()?, &name).map(|(call, _)| call);
            let since =
                open.filter(|(call, _)| Some(*call) == now).map_or_else(Instant::now, |(_, since)| since);
            open = now.map(|call| (call, since));
            Ok(now.filter(|_| since.elapsed() > HANGS))
        });
        if let Ok(call) = hangs.await {
            return Ok(call);
        }
        stage.seat(seat)?.proxy.flow(direction);
    }
    Err(format!("{STALLS_MAX} stalls met no settle").into())
}

/// The settle that an instance has begun last, if it has heard nothing of it: which, and one event that it delivers.
fn open_settle(entries: &[Entry], name: &str) -> Option<(u64, u64)> {
    let last = entries.iter().rev().filter(|entry| entry.by == name).find_map(|entry| match entry.what {
        What::Settling { call, seq, .. } => Some(Some((call, seq))),
        What::Settled { .. } | What::Refused { .. } => Some(None),
        _ => None,
    });
    last.flatten()
}

/// A settle is committed, and the connection is lost before the answer comes.
async fn lose_the_reply_to_a_commit(stage: &mut Stage, seat: usize) -> Result<(), Failure> {
    let name = stage.seat(seat)?.name()?;
    for _ in 0..LOST_REPLIES_MAX {
        let mark = stage.mark()?;
        settling(stage, mark, &name).await?;
        stage.fault("stalled", &name)?;
        stage.seat(seat)?.proxy.stall(Direction::ToClient);
        // Whether it is committed is asked first, so that an answer in between is not taken for one that was lost.
        let lost = until("a commit is seen, and not answered", COMMIT, async || {
            let Some((call, seq)) = open_settle(stage.reader.read_on()?, &name) else { return Ok(None) };
            let committed = stage.database.is_done(seq).await?;
            let open = open_settle(stage.reader.read_on()?, &name);
            Ok(open.filter(|open| committed && *open == (call, seq)))
        });
        let lost = lost.await;
        stage.fault("cut", &name)?;
        stage.seat(seat)?.proxy.cut();
        stage.seat(seat)?.proxy.flow(Direction::ToClient);
        if let Ok((call, _)) = lost {
            // Repeated on a new connection, it finds its work done.
            let answered = |entry: &Entry| match entry.what {
                What::Settled { call: settled } | What::Refused { call: settled, .. } if entry.by == name => {
                    (settled >= call).then_some(())
                }
                _ => None,
            };
            return stage.said(mark, "the settle is repeated", answered).await;
        }
    }
    Err(format!("of {LOST_REPLIES_MAX} replies that were lost none was that of a commit").into())
}

/// The network is away for everybody, those who write included. They have sent something and wait for the answer when it goes: it may
/// be a commit, of which they never hear.
async fn cut_everybody(stage: &Stage) -> Result<(), Failure> {
    stage.fault("cut", "all")?;
    stage.writers.stall(Direction::ToClient);
    pass(HANGS).await;
    let proxies = || stage.seats.iter().map(|seat| &seat.proxy).chain([&stage.writers]);
    proxies().for_each(|proxy| {
        proxy.refuse();
        proxy.cut();
    });
    stage.writers.flow(Direction::ToClient);
    pass(OUTAGE).await;
    proxies().for_each(|proxy| proxy.admit());
    Ok(())
}

/// The server ends while everybody is at work, and starts again.
fn restart_the_server(stage: &mut Stage, end: End) -> Result<(), Failure> {
    stage.fault("server-ended", "all")?;
    stage.database.restart(end)
}

/// One of three is left with everything.
async fn stop_one_and_kill_another(stage: &mut Stage, stopped: usize, killed: usize) -> Result<(), Failure> {
    let names = (stage.seat(stopped)?.name()?, stage.seat(killed)?.name()?);
    stage.seat(stopped)?.process()?.signal("-STOP")?;
    stage.fault("stopped", &names.0)?;
    kill(stage, killed)?;
    stage.taken_over(&names.0).await?;
    stage.taken_over(&names.1).await?;
    stage.fault("continued", &names.0)?;
    stage.seat(stopped)?.process()?.signal("-CONT")?;
    stage.start(killed).await
}

fn kill(stage: &mut Stage, seat: usize) -> Result<(), Failure> {
    let process = stage.seat_mut(seat)?.take_process()?;
    let name = process.name.clone();
    process.kill()?;
    stage.fault("killed", &name)
}

/// Waits until an instance begins a settle.
async fn settling(stage: &mut Stage, mark: usize, name: &str) -> Result<(), Failure> {
    let begins =
        |entry: &Entry| (entry.by == name && matches!(entry.what, What::Settling { .. })).then_some(());
    stage.said(mark, "a settle begins", begins).await
}

/// Waits until an instance counts outcomes that came to nothing.
async fn fenced(stage: &mut Stage, mark: usize, name: &str) -> Result<(), Failure> {
    let fenced =
        |entry: &Entry| (entry.by == name && matches!(entry.what, What::Fenced { .. })).then_some(());
    stage.said(mark, "outcomes are fenced", fenced).await
}
