/// Delivers recorded values and a recorded completion to each subscriber, at the pace of its demand.
public struct Record<Output, Failure: Error>: Publisher {
  /// The values and completion to deliver.
  public let recording: Recording

  /// A sequence of values and a completion.
  public struct Recording {
    /// The type of the recorded values.
    public typealias Input = Output
    /// The values.
    public private(set) var output: [Output]
    /// The completion.
    public private(set) var completion: Subscribers.Completion<Failure>
    private var isOver = false

    /// Creates an empty recording, whose completion is `finished` by default.
    public init() { self.init(output: [], isOver: false) }

    /// Creates a complete recording, which accepts no further values.
    public init(output: [Output], completion: Subscribers.Completion<Failure> = .finished) {
      self.init(output: output, completion: completion, isOver: true)
    }

    private init(output: [Output], completion: Subscribers.Completion<Failure> = .finished, isOver: Bool) {
      (self.output, self.completion, self.isOver) = (output, completion, isOver)
    }

    /// Records a value.
    ///
    /// - Precondition: No completion has been recorded.
    public mutating func receive(_ input: Output) {
      precondition(!isOver, "a recording takes no value after the end")
      output.append(input)
    }

    /// Records the completion.
    ///
    /// - Precondition: No completion has been recorded.
    public mutating func receive(completion: Subscribers.Completion<Failure>) {
      precondition(!isOver, "a recording has one end")
      self.completion = completion
      isOver = true
    }
  }

  /// - Parameter record: Records the values and completion to deliver.
  public init(record: (inout Recording) -> Void) {
    var recording = Recording()
    record(&recording)
    self.init(recording: recording)
  }

  /// Creates a publisher of a recording.
  public init(recording: Recording) { self.recording = recording }

  /// Creates a publisher of `output`, then `completion`.
  public init(output: [Output], completion: Subscribers.Completion<Failure>) {
    self.init(recording: Recording(output: output, completion: completion))
  }

  /// Attaches the subscriber.
  public func receive<S: Subscriber<Output, Failure>>(subscriber: S) {
    SequenceSubscription(recording.output, recording.completion, subscriber, name: "Record").begin()
  }
}

extension Record: Sendable where Output: Sendable {}
extension Record.Recording: Sendable where Output: Sendable {}

extension Record: Codable where Output: Codable, Failure: Codable {
  private enum CodingKeys: CodingKey { case recording }
}

extension Record.Recording: Codable where Output: Codable, Failure: Codable {
  private enum CodingKeys: CodingKey { case output, completion }

  /// Decodes a complete recording, which accepts no further values.
  public init(from decoder: any Decoder) throws {
    let container = try decoder.container(keyedBy: CodingKeys.self)
    self.init(
      output: try container.decode([Output].self, forKey: .output),
      completion: try container.decode(Subscribers.Completion<Failure>.self, forKey: .completion))
  }

  /// Encodes values and completion.
  public func encode(into encoder: any Encoder) throws { try encode(to: encoder) }

  /// Encodes values and completion.
  public func encode(to encoder: any Encoder) throws {
    var container = encoder.container(keyedBy: CodingKeys.self)
    try container.encode(output, forKey: .output)
    try container.encode(completion, forKey: .completion)
  }
}
