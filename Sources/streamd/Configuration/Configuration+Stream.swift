import StreamProtocol
import ReplayLog

extension Configuration {
  /// `[streams.NAME]`: one source and how it is shared.
  struct Stream: Sendable, Equatable {
    /// Letters, digits, `.`, `_`, `-` and `/`; 1 to 255 bytes.
    var name: String
    /// One line for the catalogue, at most 1024 bytes.
    var description = ""
    /// MIME type of the events, ASCII, at most 255 bytes (RSocket gives its length one byte).
    var type = "application/json"
    var source: Source
    /// A jq program that each event goes through; `nil`: events stay as they are.
    var jq: String?
    var distinct = Distinct.no
    /// At most one event in each such time, the newest; 1 ms to 365 days.
    var throttle: Duration?
    /// Events a newcomer gets, `0...buffer.events`.
    var replay = 1
    var buffer = Buffer()
    var start = Start.subscribed
    /// How long the source outlives its last subscriber; matters for `Start.subscribed`.
    var linger = Duration.seconds(30)
    var onLag = LagPolicy.skip
    var overflow = Overflow.drop
    /// How long a subscriber may keep the source of a stream that blocks waiting, in all; `nil`: for ever.
    var blockTimeout: Duration? = .seconds(60)
    /// What an event that it takes counts against that.
    var blockPace = Duration.seconds(1)
    var retry = Retry()
    var keep = Keep.memory
    /// Who may subscribe: whom any of the rules admits. Never empty.
    var read: [AccessRule] = [.anyone]
    /// Who may publish, for `Source.publish`: whom any of the rules admits. Never empty; `nil`: the daemon's own user and
    /// root.
    var write: [AccessRule]?
  }

  /// Which events are dropped as repeating the one before, after `jq`.
  enum Distinct: Sendable, Equatable {
    case no
    /// Those that are equal byte for byte.
    case whole
    /// Those for which this jq program gives the same.
    case by(String)
  }

  /// Where the events come from.
  enum Source: Sendable, Equatable {
    case timer(Timer)
    case http(HTTP)
    case exec(Exec)
    /// Clients put the events in. It runs whenever the daemon does.
    case publish
  }

  /// A source that ticks.
  struct Timer: Sendable, Equatable {
    /// 1 ms to 365 days.
    var every: Duration
    /// How late a tick may be, in favour of fewer wake-ups. Less than `every`.
    var leeway = Duration.zero
    /// Ticks until the stream completes, at least 1; `nil`: without end.
    var times: Int?
  }

  /// A source that runs a program and reads its output.
  struct Exec: Sendable, Equatable {
    /// The program and its arguments, for no shell. The first is not empty; none has a NUL in it.
    var command: [String]
    /// By name.
    var environment: [Variable] = []
    /// Bytes of one line; more than that is a failure of the program. `nil`: 1 MiB.
    var maxLineBytes: Int?
  }

  /// A variable of a program's environment.
  struct Variable: Sendable, Equatable {
    /// Letters, digits and `_`, not a digit first.
    var name: String
    /// No NUL.
    var value: Header.Value
  }

  /// What is held for those who lag; whichever limit is reached first.
  struct Buffer: Sendable, Equatable {
    var events = 65536
    var bytes = 8 << 20
    /// `nil`: however old.
    var age: Duration?
  }

  /// When a stream's source is subscribed to.
  enum Start: String, CaseIterable, Sendable {
    /// While someone listens, plus `linger`.
    case subscribed
    /// From the first subscriber on.
    case first
    /// From start-up on.
    case always
  }

  /// What happens when the buffer is full.
  enum Overflow: String, CaseIterable, Sendable {
    /// The oldest events are dropped.
    case drop
    /// The source waits for the slowest subscriber.
    case block
  }

  /// Where a stream's events are, and so what they outlive.
  enum Keep: String, CaseIterable, Sendable {
    /// In memory that goes with the daemon.
    case no
    /// In memory that the service manager holds: until the service is stopped.
    case memory
    /// In a file: whatever happens, but for the last moments before a loss of power.
    case disk
  }

  /// The pauses after failures of a source: exponential, from `first` up to `max`.
  struct Retry: Sendable, Equatable {
    var first = Duration.seconds(1)
    /// Not less than `first`.
    var max = Duration.seconds(300)
  }
}

extension Configuration.Stream {
  /// The limit of a response's size, or of one event's, that holds for its source.
  ///
  /// A page that is an event as it is must fit into the buffer: one that did not would be dropped, and never be sent again
  /// by a server that says it has not changed.
  func maxBodyBytes(_ http: Configuration.HTTP) -> Int {
    let limit = http.maxBodyBytes ?? 8 << 20
    guard case .poll = http.fetching, jq == nil else { return limit }
    return min(limit, EventLog.Limits(buffer).maximumEventBytes)
  }

  /// What the source may give of which the buffer takes less: the key, and its size. jq may make small events of it.
  var sizeOverBuffer: (key: String, bytes: Int)? {
    let given: (String, Int?)
    switch source {
    case .http(let http): given = ("http.max_body", http.maxBodyBytes)
    case .exec(let exec): given = ("exec.max_line", exec.maxLineBytes)
    case .timer, .publish: return nil
    }
    guard let bytes = given.1, bytes > buffer.bytes, jq == nil else { return nil }
    return (given.0, bytes)
  }
}
