import Dispatch
import Reactive
import StreamClient
import StreamServer

if CommandLine.arguments[1] == "serve" {  // example serve SOCKET
  let squares = Create<Int, Never> { subscriber, context in
    for number in 1... {
      context.waitIfPaused()
      if context.cancelled { return }
      print("working out \(number)")
      subscriber.receive(number * number)
    }
  }
  try withExtendedLifetime(squares.serve(as: "squares", at: CommandLine.arguments[2])) { dispatchMain() }
} else {  // example read SOCKET
  let squares = try StreamConnection(socket: CommandLine.arguments[2]).stream("squares").prefix(3)
  for try await square in squares.values { print(String(decoding: square.data, as: UTF8.self)) }
}
