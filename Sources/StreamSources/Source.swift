import Events
import Reactive

/// A source that runs on the source thread, for one subscription at a time, such as a shared log's: each continues the
/// schedule and the pauses of the previous one. Never completes.
///
/// Each value is a batch: events that arrived together, each its bytes. One unit of demand is one batch; the driver says what
/// happens without demand. A failure is reported, and tried again.
public struct Source<Driver: SourceDriver>: Publisher, Sendable {
  /// A batch of events, each its bytes.
  public typealias Output = EventBatch
  /// A failure is reported and tried again.
  public typealias Failure = Never

  private let subscription: SubscriptionMaker

  /// A source without a subscription: nothing runs.
  public init(_ driver: Driver, in context: SourceContext) { subscription = driver.subscriptions(in: context) }

  /// Subscribes. Values are delivered on the source thread.
  public func receive<S: Subscriber>(subscriber: S) where S.Input == Output, S.Failure == Failure {
    subscriber.receive(subscription: subscription(AnySubscriber(subscriber)))
  }
}

/// A kind of source as a value: where its events come from.
public protocol SourceDriver: Sendable {
  /// Makes the subscriptions of one source.
  ///
  /// - Returns: what outlives a subscription belongs to it.
  func subscriptions(in context: SourceContext) -> SubscriptionMaker
}

/// Makes a subscription, at most one of which is live at a time. Called on any thread.
public typealias SubscriptionMaker = @Sendable (AnySubscriber<EventBatch, Never>) -> any Subscription

/// The parts of the program that a source uses. Each source has its own. Closures are called on the source
/// thread, and must return promptly.
public struct SourceContext: Sendable {
  /// The thread on which the source runs.
  public let thread: SourceThread
  /// The stream's name: it determines the offset of polls within their interval, and the processes of the source have it
  /// in their environment, which other users cannot read; nil: a poll uses its URL.
  public var name: String?
  /// The stream's template, whose streams share the processes of jq programs; nil: the stream has none.
  package var template: String?
  /// A program that calls `HelperProcess.runIfAsked` first. By default this one, also if its file was replaced.
  public var executable = "/proc/self/exe"
  /// Where a subscription resumes; nil: each begins anew, and batches have no checkpoint. Called at a subscription's first
  /// demand; for a timer on any thread, at its first tick.
  public var checkpoint: (@Sendable (CheckpointScope) -> Checkpoint?)?
  /// Text that identifies the pipeline: with a different one, an unchanged page counts as new.
  public var pipeline = ""
  /// Asked before each fetch of a poll; nil: demand is enough.
  public var admission: FetchAdmission?
  /// Continues the schedule of another process; nil: there is none.
  public var handover: SourceHandover?
  /// Keeps refresh tokens that a server has replaced; nil: their sources then fail.
  public var tokenStore: TokenStore?
  /// Makes the source ask its upstream before its next attempt is due.
  public var refresh = SourceRefresh()
  /// Shared with the source that this one replaces, if any: a new program starts after the old one has ended.
  public var place = ProgramPlace()
  /// Called for each fetch of a poll that did not fail, before its event if it has one.
  public var succeeded: @Sendable () -> Void = {}
  /// Called with each change that the source's counters record.
  public var progress: @Sendable (SourceProgress) -> Void = { _ in }
  /// Called with the state of what the source shares with those of other streams, which is reported for all of them elsewhere, and
  /// with whether this stream counts it.
  public var shared: @Sendable (_ report: SourceReport, _ isCounted: Bool) -> Void = { _, _ in }
  /// Called with the number of parts of answers that belong to none of the streams that share the source.
  public var unrouted: @Sendable (Int) -> Void = { _ in }
  /// Called with each failure and loss, and at the end of a series of them.
  public var report: @Sendable (SourceReport) -> Void

  /// Everything except the thread and the report has a default.
  public init(on thread: SourceThread, report: @escaping @Sendable (SourceReport) -> Void) {
    (self.thread, self.report) = (thread, report)
  }

  /// Where a source of a kind with checkpoints of this scope resumes.
  package func resumption(_ scope: CheckpointScope) -> SourceResumption? {
    checkpoint.map { checkpoint in SourceResumption(pipeline: pipeline) { checkpoint(scope) } }
  }
}

/// The events that a checkpoint describes, if hosts share the stream.
public enum CheckpointScope: Sendable {
  /// The newest events of all hosts; nil while this host has no event, because it then needs the page even if that is
  /// unchanged.
  case event
  /// The newest events of all hosts.
  case stream
  /// The newest events of this host's log.
  case log
}

/// Decides, at the moment of a fetch, whether anything wants its event: demand may be known elsewhere. Called on the source
/// thread with a closure that must be called there once, now or later. If it is called with false there is no fetch, and
/// no demand until it is requested again.
public typealias FetchAdmission = @Sendable (@escaping @Sendable (_ isWanted: Bool) -> Void) -> Void
