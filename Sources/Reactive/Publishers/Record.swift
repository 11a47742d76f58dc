/// Values and an end that were noted before, for each subscriber at the pace of its demand.
public struct Record<Output, Failure: Error>: Publisher {
  /// What is delivered.
  public let recording: Recording

  /// Values and an end.
  public struct Recording {
    /// What a recording notes.
    public typealias Input = Output
    /// The values.
    public private(set) var output: [Output]
    /// The end.
    public private(set) var completion: Subscribers.Completion<Failure>
    private var isOver = false

    /// Nothing yet; finishes unless told otherwise.
    public init() { self.init(output: [], isOver: false) }

    /// Values and an end. Takes no more.
    public init(output: [Output], completion: Subscribers.Completion<Failure> = .finished) {
      self.init(output: output, completion: completion, isOver: true)
    }

    private init(output: [Output], completion: Subscribers.Completion<Failure> = .finished, isOver: Bool) {
      (self.output, self.completion, self.isOver) = (output, completion, isOver)
    }

    /// Notes a value.
    ///
    /// - Precondition: The end was not noted yet.
    public mutating func receive(_ input: Output) {
      precondition(!isOver, "a recording takes no value after the end")
      output.append(input)
    }

    /// Notes the end.
    ///
    /// - Precondition: The end was not noted yet.
    public mutating func receive(completion: Subscribers.Completion<Failure>) {
      precondition(!isOver, "a recording has one end")
      self.completion = completion
      isOver = true
    }
  }

  /// - Parameter record: Notes what is to be delivered.
  public init(record: (inout Recording) -> Void) {
    var recording = Recording()
    record(&recording)
    self.init(recording: recording)
  }

  /// Delivers a recording.
  public init(recording: Recording) { self.recording = recording }

  /// Delivers `output`, then `completion`.
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

  /// Decodes values and end; takes no more.
  public init(from decoder: any Decoder) throws {
    let container = try decoder.container(keyedBy: CodingKeys.self)
    self.init(
      output: try container.decode([Output].self, forKey: .output),
      completion: try container.decode(Subscribers.Completion<Failure>.self, forKey: .completion))
  }

  /// Encodes values and end.
  public func encode(into encoder: any Encoder) throws { try encode(to: encoder) }

  /// Encodes values and end.
  public func encode(to encoder: any Encoder) throws {
    var container = encoder.container(keyedBy: CodingKeys.self)
    try container.encode(output, forKey: .output)
    try container.encode(completion, forKey: .completion)
  }
}
