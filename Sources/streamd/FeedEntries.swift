import Events
import StreamRuntime
import StreamServer
import StreamSources
import Systemd

/// Turns the reports of a stream's source and pipeline into journal entries. If failures and recoveries alternate, they
/// have one entry in a minute (`FailureNotes`). At the level debug, each failure has one. Knows no clock; times are
/// those of the caller.
struct FeedEntries {
  /// Why an event was removed by `validate`.
  static func noJSON(_ fault: String) -> String { "it is not JSON, which the stream requires (validate): \(fault)" }

  private let stream: String
  private var source = FailureNotes()
  private var waits = FailureNotes()
  /// The process of the pipeline's programs.
  private var process = FailureNotes()
  /// The events on which a program fails, and those that the source leaves out.
  private var events = FailureNotes()
  /// The losses of a source.
  private var losses = FailureNotes()

  init(of stream: String) { self.stream = stream }

  /// When `passed` must be called; nil: never.
  var due: Duration? { [source.due, waits.due, process.due, events.due, losses.due].compactMap(\.self).min() }

  /// Takes a report of the source.
  mutating func take(_ report: SourceReport, at now: Duration) -> [Journal.Entry] {
    let before = passed(at: now)
    switch report {
    case .failing(let reason, _, let pause):
      _ = waits.recovered(at: now)  // a source that fails no longer waits
      return before + [failure(source.failed(reason, at: now), reason, nextIn: pause)]
    case .halted(let reason):
      _ = waits.recovered(at: now)
      return before + [failure(source.failed(reason, at: now), reason, nextIn: nil)]
    case .waiting(let reason):
      return before + [wait(waits.failed(reason, at: now), reason)]
    case .recovered:
      let wait = waits.recovered(at: now).map { self.wait($0, "") }
      return before + [source.recovered(at: now).map { failure($0, "") } ?? wait].compactMap(\.self)
    case .limited(let what): return before + [limited(what)]
    case .lost(let reason, let count):
      return before + [failedEvent(events.failed(reason, count: count, at: now), reason)]
    case .complete: return before + passing(at: now)
    case .said(let line): return before + [entry(.programSaid, .info, "program wrote: \(line)")]
    case .missed(let missed, let stream): return before + missedEvents(missed, of: stream, at: now)
    case .current: return before + readsAll(at: now)
    }
  }

  /// Takes a report of the pipeline.
  mutating func take(_ report: PipelineReport, at now: Duration) -> [Journal.Entry] {
    let before = passed(at: now)
    switch report {
    case .failedEvent(let reason): return before + [failedEvent(events.failed(reason, at: now), reason)]
    case .malformed(let count, let fault):
      let reason = Self.noJSON(fault)
      return before + [failedEvent(events.failed(reason, count: count, at: now), reason)]
    case .passing: return before + passing(at: now)
    case .process(.failing(let reason, _, let pause)):
      return before + [failure(process.failed(reason, at: now), reason, nextIn: pause)]
    case .process(.recovered):
      return before + [process.recovered(at: now).map { failure($0, "") }].compactMap(\.self)
    case .process(.limited(let what)): return before + [limited(what)]
    case .process: return before  // the others are reports of sources
    }
  }

  /// Takes a report of a derived stream's source.
  mutating func take(_ report: DerivedSource.Report, at now: Duration) -> [Journal.Entry] {
    let before = passed(at: now)
    switch report {
    case .missed(let missed, let base): return before + missedEvents(missed, of: "\"\(base)\"", at: now)
    case .current: return before + readsAll(at: now)
    }
  }

  private mutating func missedEvents(_ missed: EventLoss, of stream: String, at now: Duration) -> [Journal.Entry] {
    let reason =
      switch missed {
      case .known(let count): "\(counted(Int(clamping: count), "event")) of \(stream), not read in time"
      case .unknown: "an unknown number of events of \(stream), not read in time"
      case .possible: "perhaps some of \(stream), in which the last event that was read is not there any more"
      }
    return [loss(losses.failed(reason, at: now), reason)]
  }

  private mutating func readsAll(at now: Duration) -> [Journal.Entry] {
    [losses.recovered(at: now).map { loss($0, "") }].compactMap(\.self)
  }

  /// Returns the entries that are due by now.
  mutating func passed(at now: Duration) -> [Journal.Entry] {
    [
      source.passed(at: now).map { failure($0, "") }, waits.passed(at: now).map { wait($0, "") },
      process.passed(at: now).map { failure($0, "") }, events.passed(at: now).map { failedEvent($0, "") },
      losses.passed(at: now).map { loss($0, "") },
    ].compactMap(\.self)
  }

  private mutating func passing(at now: Duration) -> [Journal.Entry] {
    [events.recovered(at: now).map { failedEvent($0, "") }].compactMap(\.self)
  }

  private func failure(_ note: FailureNotes.Note, _ reason: String, nextIn pause: Duration? = nil) -> Journal.Entry {
    let next = pause.map { "; next try \($0 > .zero ? "in \($0.inWords)" : "at once")" } ?? ""
    let text = "source failing: \(reason)\(next)"
    return switch note {
    case .began: entry(.sourceFailing, .warning, text)
    case .repeated: entry(.sourceFailing, .debug, text)
    case .many(let count, let last):
      entry(.sourceFailing, .warning, "source failed \(times(count)) in the last minute, last: \(last)")
    case .ended(let count): entry(.sourceRecovered, .info, "source recovered after \(counted(count, "failure"))")
    }
  }

  private func wait(_ note: FailureNotes.Note, _ reason: String) -> Journal.Entry {
    // Some reasons are the whole sentence.
    let text = reason.hasPrefix("waits ") ? "source \(reason)" : "source waits: \(reason)"
    return switch note {
    case .began: entry(.sourceWaiting, .notice, text)
    case .repeated: entry(.sourceWaiting, .debug, text)
    case .many(let count, let last):
      entry(.sourceWaiting, .notice, "source waited \(times(count)) in the last minute, last: \(last)")
    case .ended: entry(.sourceWaiting, .info, "source resumed")
    }
  }

  private func failedEvent(_ note: FailureNotes.Note, _ reason: String) -> Journal.Entry {
    switch note {
    case .began: entry(.eventFailed, .warning, "event failed: \(reason)")
    case .repeated: entry(.eventFailed, .debug, "event failed: \(reason)")
    case .many(let count, let last):
      entry(.eventFailed, .warning, "\(counted(count, "event")) failed in the last minute, last: \(last)")
    case .ended(let count): entry(.eventFailed, .info, "events no longer fail, after \(counted(count, "failure"))")
    }
  }

  private func loss(_ note: FailureNotes.Note, _ reason: String) -> Journal.Entry {
    switch note {
    case .began: entry(.eventsMissed, .warning, "events missed: \(reason)")
    case .repeated: entry(.eventsMissed, .debug, "events missed: \(reason)")
    case .many(let count, let last):
      entry(.eventsMissed, .warning, "events missed \(times(count)) in the last minute, last: \(last)")
    case .ended(let count): entry(.eventsMissed, .info, "misses no event any more; it had missed some \(times(count))")
    }
  }

  private func limited(_ what: String) -> Journal.Entry {
    entry(.limitReached, .warning, "source limited: \(what)")
  }

  private func times(_ count: Int) -> String { count == 1 ? "once" : "\(count) times" }

  private func entry(_ id: MessageID, _ priority: Journal.Priority, _ text: String) -> Journal.Entry {
    Journal.Entry(id, priority, text, [.stream(stream)])
  }
}
