/// Takes telnet's commands out of the bytes of a connection, and refuses every option. Source: RFC 854, RFC 855.
///
/// Each option is refused once in each direction, so that a peer cannot make the answers grow.
struct TelnetFilter {
  private enum Phase: Equatable {
    case data
    /// After IAC.
    case command
    /// After WILL, WONT, DO or DONT, which it has.
    case option(UInt8)
    /// After IAC SB, up to IAC SE.
    case parameters
    /// After IAC in parameters.
    case parametersCommand
  }

  private enum Code {
    static let (se, sb, will, wont, `do`, dont, iac): (UInt8, UInt8, UInt8, UInt8, UInt8, UInt8, UInt8) =
      (240, 250, 251, 252, 253, 254, 255)
  }

  /// The longest parameters of an option; longer ones have lost their end.
  static let mostParameterBytes = 64 << 10

  private var phase = Phase.data
  private var isAfterCR = false
  private var parameterCount = 0
  private var refused: Set<[UInt8]> = []
  private var answers: [UInt8] = []

  /// Appends what is no command.
  /// - Throws: for parameters without an end.
  mutating func filter(_ bytes: UnsafeRawBufferPointer, into output: inout [UInt8]) throws(ContentFault) {
    for index in bytes.indices {
      let byte = unsafe bytes[index]
      switch phase {
      case .data where byte == Code.iac: phase = .command
      case .data: append(byte, to: &output)
      case .command: takeCommand(byte, into: &output)
      case .option(let verb):
        refuse(byte, after: verb)
        phase = .data
      case .parameters:
        parameterCount += 1
        guard parameterCount <= Self.mostParameterBytes else {
          throw ContentFault(sentence: "the parameters of a telnet option have no end")
        }
        if byte == Code.iac { phase = .parametersCommand }
      case .parametersCommand: phase = byte == Code.se ? .data : .parameters
      }
    }
  }

  /// Removes and returns what is to be sent.
  mutating func takeAnswers() -> [UInt8] {
    defer { answers = [] }
    return answers
  }

  /// A NUL after CR is no data: it shows that no LF follows.
  private mutating func append(_ byte: UInt8, to output: inout [UInt8]) {
    if !(isAfterCR && byte == 0) { output.append(byte) }
    isAfterCR = byte == 0x0D
  }

  private mutating func takeCommand(_ byte: UInt8, into output: inout [UInt8]) {
    phase = .data
    switch byte {
    case Code.iac: append(byte, to: &output)
    case Code.sb: (phase, parameterCount) = (.parameters, 0)
    case Code.will...Code.dont: phase = .option(byte)
    default: break  // a command without an option, such as NOP or GA
    }
  }

  private mutating func refuse(_ option: UInt8, after verb: UInt8) {
    guard verb == Code.will || verb == Code.do else { return }
    let answer = [Code.iac, verb == Code.will ? Code.dont : Code.wont, option]
    if refused.insert(answer).inserted { answers += answer }
  }
}
