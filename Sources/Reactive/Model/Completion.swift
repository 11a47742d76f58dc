extension Subscribers {
  /// The end of a publisher's values: success or failure.
  public enum Completion<Failure: Error> {
    /// The publisher has delivered all its values.
    case finished
    /// The publisher stopped because of an error.
    case failure(Failure)
  }
}

extension Subscribers.Completion: Sendable {}
extension Subscribers.Completion: Equatable where Failure: Equatable {}
extension Subscribers.Completion: Hashable where Failure: Hashable {}

extension Subscribers.Completion: Codable where Failure: Codable {
  private enum CodingKeys: CodingKey { case success, error }

  /// Decodes the success flag and, for a failure, the error.
  public init(from decoder: any Decoder) throws {
    let container = try decoder.container(keyedBy: CodingKeys.self)
    let isSuccess = try container.decode(Bool.self, forKey: .success)
    self = isSuccess ? .finished : .failure(try container.decode(Failure.self, forKey: .error))
  }

  /// Encodes the success flag and, for a failure, the error.
  public func encode(to encoder: any Encoder) throws {
    var container = encoder.container(keyedBy: CodingKeys.self)
    switch self {
    case .finished: try container.encode(true, forKey: .success)
    case .failure(let error):
      try container.encode(false, forKey: .success)
      try container.encode(error, forKey: .error)
    }
  }
}

extension Subscribers.Completion {
  /// Returns the same completion with another failure type.
  @inlinable func mapFailure<NewFailure>(_ transform: (Failure) -> NewFailure) -> Subscribers.Completion<NewFailure> {
    switch self {
    case .finished: .finished
    case .failure(let error): .failure(transform(error))
    }
  }
}
