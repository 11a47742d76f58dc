/// The journal to read, and which of its entries.
public struct JournalConfiguration: Sendable, Equatable {
  /// Where a stream begins that has read no entry yet.
  public enum Beginning: Sendable, Equatable {
    /// With the entries of this time before the first demand; zero: with later ones.
    case before(Duration)
    /// With the entries from this time on, in microseconds since the Unix epoch.
    case at(UInt64)
  }

  /// A directory with journal files, or with directories of them; nil: the journal of this machine.
  public var directory: String?
  /// `FIELD=value`. An entry has all fields that are named, each with one of the values that are listed for it; empty:
  /// all entries.
  public var matches: [String]
  /// The beginning of a stream without a checkpoint.
  public var beginning: Beginning
  /// Maximum bytes of an event. A larger entry is dropped.
  public var maximumEventBytes: Int
  /// Maximum events and bytes of a batch; one larger event is a batch, too.
  public var batchEvents = 1024
  /// See `batchEvents`.
  public var batchBytes = 64 << 10
  /// The delays after failures.
  public var retry: Backoff
  /// The time without demand after which the journal is closed: an open one keeps the space of files that journald has
  /// removed.
  var restTime = Duration.seconds(10)

  /// Everything has a default.
  public init(
    directory: String? = nil, matches: [String] = [], beginning: Beginning = .before(.zero),
    maximumEventBytes: Int = 8 << 20, retry: Backoff = Backoff()
  ) {
    (self.directory, self.matches, self.beginning) = (directory, matches, beginning)
    (self.maximumEventBytes, self.retry) = (maximumEventBytes, retry)
  }
}
