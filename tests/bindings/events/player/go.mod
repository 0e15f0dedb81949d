module player

go 1.19

require quire v0.1.0

replace quire => ../../../../bindings/go
