extension FailureReason {
  /// The reason of an ERROR from a server of the last release, which has no numbers: its sentence tells. This is the only
  /// place at which the Swift clients compare sentences of a server.
  ///
  /// - Parameter code: the RSocket code.
  init?(ofLastRelease code: UInt32, _ sentence: String) {
    switch code {
    case 0x003: self.init(setup: sentence)
    case 0x101: self.init(connection: sentence)
    case 0x102, 0x203: self.init(canceled: sentence)
    case 0x201: self = .failed
    case 0x202: self.init(rejected: sentence)
    case 0x204: self.init(invalid: sentence)
    case 0x301: self = .lagged
    case _: return nil
    }
  }

  private init?(setup sentence: String) {
    if sentence == "the token is not valid" {
      self = .invalidToken
    } else if sentence.contains("(max_connections") {
      self = .tooManyConnections
    } else if sentence.hasPrefix("streamd cannot start: ") {
      self = .notConfigured
    } else {
      return nil
    }
  }

  private init?(connection sentence: String) {
    if sentence.hasPrefix("the fragments up to request ") {
      self = .requestTooLarge
    } else if sentence.contains("(max_") {
      self = .tooMuchInput
    } else {
      return nil
    }
  }

  private init?(rejected sentence: String) {
    if sentence.hasPrefix("no stream named \"") || sentence.hasPrefix("no stream has a name of ") {
      self = .noStream
    } else if sentence.contains(" may not read \"") {
      self = .mayNotRead
    } else if sentence.contains(" may not write \"") {
      self = .mayNotWrite
    } else if sentence.hasSuffix(" does not accept values") {
      self = .takesNoValues
    } else if sentence.contains(" maps that it has not received, ") {
      self = .tooManyMaps
    } else if sentence == "the system does not pass descriptors at present" {
      self = .noDescriptors
    } else {
      return nil
    }
  }

  private init?(invalid sentence: String) {
    if sentence.hasPrefix("no event has the id ") || sentence.hasPrefix("no event has the position ") {
      self = .unknownPosition
    } else if sentence.contains(" is too large for \"") || sentence.contains(": its fragments exceed the limit of ") {
      self = .tooLarge
    } else if sentence.hasSuffix(" is not mapped") {
      self = .notMapped
    } else if sentence.contains(" cannot be mapped over ") {
      self = .notMappable
    } else {
      return nil
    }
  }

  private init?(canceled sentence: String) {
    if sentence == "streamd is stopping" {
      self = .stopping
    } else if sentence == "streamd is restarting" || sentence.hasPrefix("streamd restarts") {
      self = .restarting
    } else if sentence == "an operator has ended this connection" {
      self = .kicked
    } else if sentence.hasPrefix("token \""), sentence.hasSuffix(" is not valid any more") {
      self = .tokenRemoved
    } else if sentence.hasPrefix("another publisher to ") {
      self = .nameInUse
    } else if sentence.contains(" was changed before it had stored all values") {
      self = .valuesLost
    } else if sentence.hasSuffix(" is no longer served") {
      self = .removed
    } else if sentence.hasSuffix(" no longer accepts values") {
      self = .takesNoMoreValues
    } else if sentence.hasSuffix(" is not mapped any more") {
      self = .mapRemoved
    } else if sentence.hasSuffix("\" has ended") {
      self = .ended
    } else {
      return nil
    }
  }
}
