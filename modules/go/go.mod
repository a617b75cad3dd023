module klamm.dev/klamm

go 1.24
